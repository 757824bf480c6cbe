package hosts

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/hosts/funcshost"
	"github.com/latticekv/lattice/tests/running"
)

// payloads are what hosts have been seen to send with a timer, and worse.
func payloads() map[string]string {
	whole := funcshost.Payload(time.Now(), false)
	return map[string]string{
		"whole":          whole,
		"past due":       funcshost.Payload(time.Now().Add(-time.Hour), true),
		"no status":      `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,"IsPastDue":false}},"Metadata":{"sys":{}}}`,
		"no time":        strings.ReplaceAll(whole, `"Last":"2`, `"Last":"0001-01-01T00:00:00-99:99`),
		"twice encoded":  fmt.Sprintf(`{"Data":{"timer":%q},"Metadata":{"sys":%q}}`, `{"IsPastDue":"false"}`, `"{}"`),
		"null":           "null",
		"missing data":   `{"Metadata":{}}`,
		"a list":         `[1,2,3]`,
		"nothing":        "",
		"cut off":        whole[:len(whole)/2],
		"no text":        "\x00\xff\xfe",
		"deeply nested":  strings.Repeat("[", 100_000),
		"many megabytes": `{"Data":{"timer":"` + strings.Repeat("x", 12<<20) + `"}}`,
	}
}

func TestTimersRunWhateverTheHostSays(t *testing.T) {
	h := functionApp(t)
	if put := send(t, "PUT", h.URL+"/v1/trees/t/keys/a", strings.NewReader("v")); put.status != 201 {
		t.Fatalf("put: %d %s", put.status, put.body)
	}
	for name, payload := range payloads() {
		done, err := h.Invoke(t.Context(), schedule.Names()[len(name)%len(schedule.Names())], payload)
		if err != nil || !done.OK() || len(done.Logs) != 1 || done.Outputs == nil {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
	// All of them, twice at once.
	var all sync.WaitGroup
	for _, timer := range schedule.Names() {
		for range 2 {
			all.Go(func() {
				if done, err := h.Invoke(t.Context(), timer, funcshost.Payload(time.Now(), false)); err != nil || !done.OK() {
					t.Errorf("%s: %+v, %v", timer, done, err)
				}
			})
		}
	}
	all.Wait()
	if h.Starts() != 1 {
		t.Errorf("%d handlers were started", h.Starts())
	}
}

func TestTimersCannotBeRunFromOutside(t *testing.T) {
	for name, bare := range map[string]bool{"on the platform": false, "on a developer's machine": true} {
		t.Run(name, func(t *testing.T) {
			h := functionApp(t, func(o *funcshost.Options) { o.Bare = bare })
			for _, timer := range schedule.Names() {
				for _, path := range []string{"/", "/v1/../", "/v1/%2e%2e/", "/v1/%252e%252e/", "/v1/a/%252e%252e/%252e%252e/", `/v1/..%5C`, `/v1/%252e%252e%5C`, "/v1/%252e%252e/internal/timers/", "/internal/timers/"} {
					got := send(t, "POST", h.URL+path+timer, strings.NewReader("{}"))
					// 400: the platform tells the path as it was sent, which none of the service's is like.
					if !slices.Contains([]int{400, 401, 403, 404}, got.status) || strings.Contains(got.body, "ReturnValue") {
						t.Errorf("POST %s%s: %d %s", path, timer, got.status, got.body)
					}
				}
			}
		})
	}
}

// unpack lays out a zip as the platform does, with the modes that it tells.
func unpack(t *testing.T, file string) (dir string, names []string) {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir = t.TempDir()
	for _, f := range z.File {
		names = append(names, f.Name)
		at := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, text, f.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	return dir, names
}

func TestPackageIsAWorkingFunctionApp(t *testing.T) {
	dist := t.TempDir()
	cmd := exec.Command(running.Root(t)+"/scripts/package.sh", "azurefunc")
	cmd.Env = append(os.Environ(), "DIST="+dist, "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("package: %v\n%s", err, out)
	}
	dir, names := unpack(t, dist+"/lattice-azurefunc.zip")
	want := []string{"api/function.json", "handler", "healthz/function.json", "host.json", "metrics/function.json", "openapi/function.json", "readyz/function.json"}
	for _, timer := range schedule.Names() {
		want = append(want, timer+"/function.json")
	}
	slices.Sort(want)
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("the zip has %q, want %q", names, want)
	}
	h := funcshost.Start(t, funcshost.Options{App: dir, Env: onAzurite(t, azurite.Shared(t).ConnectionString())})
	if out := h.Handler().Output(); !strings.Contains(out, `"msg":"ready"`) || !strings.Contains(out, "startupMs") {
		t.Errorf("the handler does not tell that it is ready:\n%s", out)
	}
	value := "\x00\xff\x80\n"
	if put := send(t, "PUT", h.URL+"/v1/trees/t/keys/a%2Fb?code=k", strings.NewReader(value)); put.status != 201 {
		t.Errorf("put: %d %s", put.status, put.body)
	}
	if got := send(t, "GET", h.URL+"/v1/trees/t/key?b64=YS9i", nil); got.status != 200 || got.body != value {
		t.Errorf("get: %d %q", got.status, got.body)
	}
	for _, timer := range schedule.Names() {
		if done, err := h.Invoke(t.Context(), timer, funcshost.Payload(time.Now(), false)); err != nil || !done.OK() {
			t.Errorf("%s: %+v, %v", timer, done, err)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/metrics"} {
		if got := send(t, "GET", h.URL+path, nil); got.status != 200 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
}
