package running

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What every program writes is read once more when its test ends, from the first
// byte to the last: a secret in it fails the test. Secrets are what the program
// was given as such, what a test names, and what looks like one.

// minSecret is the shortest secret that can be looked for: a shorter one is in
// many texts by chance.
const minSecret = 8

// secrets are what no program of this test binary may write.
var secrets struct {
	sync.Mutex
	values []string
}

// Secret names values that must not be in the output of any program that tests
// of this binary run, those that run already included.
func Secret(t testing.TB, values ...string) {
	t.Helper()
	for _, v := range values {
		if len(v) < minSecret {
			t.Fatalf("a secret of %d bytes cannot be told from other text", len(v))
		}
	}
	addSecrets(values)
}

func addSecrets(values []string) {
	secrets.Lock()
	defer secrets.Unlock()
	for _, v := range values {
		if len(v) >= minSecret && !slices.Contains(secrets.values, v) {
			secrets.values = append(secrets.values, v)
		}
	}
}

// NoSecrets fails the test if a text, of which origin says where it is from, has
// a secret: for what is not the output of a program that this package runs.
func NoSecrets(t testing.TB, origin, text string) {
	t.Helper()
	secrets.Lock()
	known := slices.Clone(secrets.values)
	secrets.Unlock()
	for _, leak := range leaks(text, known) {
		t.Errorf("%s has a secret: %s", origin, leak)
	}
}

// secretForms are what secrets look like, whoever made them.
var secretForms = []struct {
	what string
	form *regexp.Regexp
}{
	{"a bearer token", regexp.MustCompile(`(?i)bearer(?: |%20|\+)+[A-Za-z0-9._~+/-]{16,}`)},
	{"an account key", regexp.MustCompile(`(?i)AccountKey=[^;\s"]{8,}`)},
	{"a shared access signature", regexp.MustCompile(`(?i)SharedAccessSignature=[^;\s"]{8,}|[?&;]sig=[^&\s"]{8,}`)},
	{"a JSON Web Token", regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	{"an API key", regexp.MustCompile(`lattice_[A-Za-z0-9_-]{43}`)},
}

// leaks tells every secret of a text, at most one for each secret and form. What
// it returns shows where, and not the secret.
func leaks(text string, known []string) []string {
	var found []string
	for _, s := range secretForms {
		if at := s.form.FindStringIndex(text); at != nil {
			found = append(found, s.what+" in "+around(text, at[0], at[1]))
		}
	}
	for i, secret := range known {
		for _, form := range spellings(secret) {
			if at := strings.Index(text, form); at >= 0 {
				found = append(found, fmt.Sprintf("value %d of %d bytes in %s", i, len(secret), around(text, at, at+len(form))))
				break
			}
		}
	}
	return found
}

// spellings are the ways in which a secret comes into a text: as it is, in an
// address, in JSON, in a Basic credential.
func spellings(secret string) []string {
	quoted := fmt.Sprintf("%q", secret)
	return []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), quoted[1 : len(quoted)-1],
		base64.StdEncoding.EncodeToString([]byte(secret)),
	}
}

// around is what stands on the line before and behind a secret.
func around(text string, from, to int) string {
	const most = 120
	before := text[strings.LastIndexByte(text[:from], '\n')+1 : from]
	after, _, _ := strings.Cut(text[to:], "\n")
	return before[max(0, len(before)-most):] + "[…]" + after[:min(len(after), most)]
}

// givenSecrets are the secrets among the variables and arguments of a program.
func givenSecrets(env, args []string) []string {
	var found []string
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case name == "AZURE_STORAGE_CONNECTION_STRING":
			found = append(found, connectionSecrets(value)...)
		case strings.HasPrefix(name, "OTEL_") && strings.HasSuffix(name, "_HEADERS"):
			for header := range strings.SplitSeq(value, ",") {
				_, v, _ := strings.Cut(header, "=")
				found = append(found, strings.TrimSpace(v))
			}
		case secretVariable.MatchString(name):
			found = append(found, value)
		case strings.HasPrefix(name, "LATTICE_"):
			found = append(found, passwords(value)...)
		}
	}
	for _, arg := range args {
		found = append(found, passwords(arg)...)
	}
	return found
}

// secretVariable are the names of variables whose value is a secret as a whole.
var secretVariable = regexp.MustCompile(`^(LATTICE_(INTERNAL_)?TOKEN|LATTICE_AUTH_KEYS|AZURE_CLIENT_SECRET|AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN|PGPASSWORD)$`)

// connectionSecrets are the key and the signature of a connection string.
func connectionSecrets(text string) []string {
	var found []string
	for field := range strings.SplitSeq(text, ";") {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "AccountKey":
			found = append(found, value)
		case "SharedAccessSignature":
			query, err := url.ParseQuery(strings.TrimPrefix(value, "?"))
			if err == nil {
				found = append(found, query.Get("sig"))
			}
		}
	}
	return found
}

// passwords are those of an address, at the end of a flag too.
func passwords(text string) []string {
	if at := strings.Index(text, "="); strings.HasPrefix(text, "--") && at > 0 {
		text = text[at+1:]
	}
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return nil
	}
	if password, ok := u.User.Password(); ok {
		return []string{password}
	}
	return nil
}

// checkOutput reads everything that a program has written.
func (p *Process) checkOutput(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(p.output.all.Name())
	if err != nil {
		t.Errorf("the output of %s cannot be looked at: %v", p.cmd.Path, err)
		return
	}
	NoSecrets(t, "the output of "+p.cmd.Path, string(text))
	if err := p.output.all.Close(); err != nil {
		t.Error(err)
	}
}
