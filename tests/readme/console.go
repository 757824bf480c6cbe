// Package readme runs what the README shows and compares what comes out with
// what it says comes out.
package readme

import (
	"fmt"
	"regexp"
	"strings"
)

// Step is one command of a document and the output it shows.
type Step struct {
	// Line is where the command stands, counted from 1.
	Line int
	// Command is for the shell.
	Command string
	// Want is the output; "…" in it stands for anything.
	Want string
}

// Steps returns the commands of the console blocks of a Markdown document:
// lines after "$ ", continued over lines that end in a backslash.
func Steps(markdown string) []Step {
	var steps []Step
	inside, continued := false, false
	for i, line := range strings.Split(markdown, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside, continued = !inside && strings.TrimSpace(line) == "```console", false
		case !inside:
		case continued:
			last := &steps[len(steps)-1]
			last.Command += "\n" + line
			continued = strings.HasSuffix(line, `\`)
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, Step{Line: i + 1, Command: strings.TrimPrefix(line, "$ ")})
			continued = strings.HasSuffix(line, `\`)
		case len(steps) > 0:
			steps[len(steps)-1].Want += line + "\n"
		}
	}
	return steps
}

// Scripts returns the sh blocks of a Markdown document, each as one step without
// an output.
func Scripts(markdown string) []Step {
	var scripts []Step
	inside, script := false, false
	for i, line := range strings.Split(markdown, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			script = !inside && strings.TrimSpace(line) == "```sh"
			inside = !inside
			if script {
				scripts = append(scripts, Step{Line: i + 2})
			}
		case script:
			scripts[len(scripts)-1].Command += line + "\n"
		}
	}
	return scripts
}

// Check compares the output of a step with the one shown, newlines at the end
// aside.
func (s Step) Check(output string) error {
	var pattern strings.Builder
	for i, part := range strings.Split(strings.TrimRight(s.Want, "\n"), "…") {
		if i > 0 {
			pattern.WriteString(`[\s\S]*?`)
		}
		pattern.WriteString(regexp.QuoteMeta(part))
	}
	if !regexp.MustCompile(`^` + pattern.String() + `\n*$`).MatchString(output) {
		return fmt.Errorf("line %d shows %q, but the output is %q", s.Line, s.Want, output)
	}
	return nil
}
