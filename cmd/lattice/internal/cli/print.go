package cli

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/latticekv/lattice/client"
)

// printJSON prints one value on a line.
func (e *env) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return e.print(b.String())
}

func (e *env) print(s string) error {
	if _, err := io.WriteString(e.Out, s); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (e *env) printf(format string, args ...any) error { return e.print(fmt.Sprintf(format, args...)) }

// show returns text for people: as it is if it prints on one line and cannot
// be mistaken for a quoted form, else quoted.
func show(s string) string {
	plain := s != "" && !strings.HasPrefix(s, `"`) && utf8.ValidString(s)
	for _, r := range s {
		if !unicode.IsPrint(r) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// maxShown is how many characters of a value a terminal gets to see.
const maxShown = 200

// showValue returns a value for people: text as show has it, anything else in
// base64. Short cuts it for a terminal.
func showValue(v []byte, short bool) string {
	if !utf8.Valid(v) {
		return clip("base64:"+base64.StdEncoding.EncodeToString(v), len(v), short)
	}
	return clip(show(string(v)), len(v), short)
}

func clip(s string, size int, short bool) string {
	if !short || utf8.RuneCountInString(s) <= maxShown {
		return s
	}
	return string([]rune(s)[:maxShown]) + fmt.Sprintf("… (%d bytes)", size)
}

// peopleWriter prints entries as lines of key, tab, value.
type peopleWriter struct {
	w     *bufio.Writer
	short bool
}

// Write implements rows.Writer.
func (p *peopleWriter) Write(e client.Entry) error {
	line := show(e.Key)
	if e.Value != nil {
		line += "\t" + showValue(e.Value, p.short)
	}
	_, err := p.w.WriteString(line + "\n")
	return err
}

// Flush implements rows.Writer.
func (p *peopleWriter) Flush() error { return p.w.Flush() }

// timeOrDash prints a time for people.
func timeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// ask puts a question to the person at the terminal. Without one, only --yes
// answers it.
func (e *env) ask(yes bool, question string) error {
	if yes {
		return nil
	}
	if !e.InTTY || !e.ErrTTY {
		return usagef("this needs --yes when there is nobody to ask (%s)", question)
	}
	fmt.Fprintf(e.Err, "%s [y/N] ", question)
	answer, done := make(chan string, 1), e.ctx.Done()
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(e.In, 1<<10)).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
		return errDeclined
	case <-done:
		fmt.Fprintln(e.Err)
		return e.ctx.Err()
	}
}
