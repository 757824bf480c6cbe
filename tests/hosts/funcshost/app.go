package funcshost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// app is a function app as the host reads it.
type app struct {
	// program is the handler, relative to the folder of the app.
	program string
	routes  []route
	// timers are the names of the functions that a schedule calls.
	timers []string
}

// route is an HTTP function.
type route struct {
	// segments of the template; a last one of the form {*name} takes any rest.
	segments []string
	methods  []string
	// level is what the platform asks of callers: anonymous, function or admin.
	level string
}

// readApp reads host.json and the function.json of every folder.
func readApp(dir string) (*app, error) {
	var config struct {
		Version    string
		Extensions struct{ HTTP struct{ RoutePrefix *string } }
		Handler    struct {
			Description struct{ DefaultExecutablePath string }
			Forwards    bool `json:"enableForwardingHttpRequest"`
		} `json:"customHandler"`
	}
	if err := readJSON(filepath.Join(dir, "host.json"), &config); err != nil {
		return nil, err
	}
	if config.Version != "2.0" || !config.Handler.Forwards || config.Handler.Description.DefaultExecutablePath == "" {
		return nil, fmt.Errorf("host.json: %+v forwards no requests", config)
	}
	prefix := "api"
	if p := config.Extensions.HTTP.RoutePrefix; p != nil {
		prefix = *p
	}
	a := &app{program: config.Handler.Description.DefaultExecutablePath}
	files, err := filepath.Glob(filepath.Join(dir, "*", "function.json"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no functions", dir), err)
	}
	for _, file := range files {
		if err := a.add(file, prefix); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return a, nil
}

// add reads one function.
func (a *app) add(file, prefix string) error {
	var function struct {
		Bindings []struct {
			Type, Direction, Name, Route, AuthLevel, Schedule string
			Methods                                           []string
		}
	}
	if err := readJSON(file, &function); err != nil {
		return err
	}
	name := filepath.Base(filepath.Dir(file))
	for _, b := range function.Bindings {
		switch {
		case b.Name == "":
			return errors.New("a binding has no name")
		case b.Type == "httpTrigger":
			template := b.Route
			if template == "" {
				template = name
			}
			template = strings.Trim(prefix+"/"+template, "/")
			a.routes = append(a.routes, route{strings.Split(template, "/"), b.Methods, b.AuthLevel})
		case b.Type == "timerTrigger" && len(strings.Fields(b.Schedule)) == 6:
			a.timers = append(a.timers, name)
		case b.Type != "http" || b.Direction != "out":
			return fmt.Errorf("binding %+v is none that the host knows", b)
		}
	}
	return nil
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// match finds the function of a request, nil if there is none. The case of
// letters and a slash at the end do not count.
func (a *app) match(method, path string) *route {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for i := range a.routes {
		r := &a.routes[i]
		if !slices.Contains(r.methods, strings.ToLower(method)) {
			continue
		}
		n := len(r.segments)
		rest := strings.HasPrefix(r.segments[n-1], "{*")
		if rest {
			n--
		}
		if len(segments) < n || !rest && len(segments) > n {
			continue
		}
		if slices.EqualFunc(segments[:n], r.segments[:n], strings.EqualFold) {
			return r
		}
	}
	return nil
}
