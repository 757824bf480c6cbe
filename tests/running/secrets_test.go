package running

import (
	"encoding/base64"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// recorded is a test that is not ended by its faults.
type recorded struct {
	testing.TB
	faults   []string
	cleanups []func()
}

func (r *recorded) Helper() {}

func (r *recorded) Errorf(string, ...any) { r.faults = append(r.faults, "fault") }

func (r *recorded) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorded) end() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

func TestSecretsAreFoundInEverySpelling(t *testing.T) {
	const secret = `a"b/c+d=é!`
	for name, text := range map[string]string{
		"plain": secret, "query": "a%22b%2Fc%2Bd%3D%C3%A9%21", "JSON": `a\"b/c+d=é!`,
		"Basic": base64.StdEncoding.EncodeToString([]byte(secret)),
	} {
		if got := leaks("first\nsay "+text+" loudly\nlast", []string{secret}); len(got) != 1 || !strings.Contains(got[0], "say […] loudly") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, text := range []string{
		"Authorization: Bearer abcdefghijklmnop", "bearer%20abcdefghijklmnop", "AccountName=a;AccountKey=c2VjcmV0c2VjcmV0;X",
		"https://h/t?sv=1&sig=c2VjcmV0c2VjcmV0", "SharedAccessSignature=sv=1&sig=x", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.", "key lattice_" + strings.Repeat("x", 43),
	} {
		if got := leaks(text, nil); len(got) == 0 {
			t.Errorf("%q passes", text)
		}
	}
	for _, text := range []string{
		`Bearer realm="lattice"`, `curl -H "Authorization: Bearer $LATTICE_TOKEN"`, "AccountKey=…", "a design=well thought", "lattice_http_requests_total", "a bearer token is needed",
	} {
		if got := leaks(text, []string{"another secret"}); len(got) != 0 {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestWhatAProgramIsGivenInConfidenceIsKnown(t *testing.T) {
	got := givenSecrets([]string{
		"AZURE_STORAGE_CONNECTION_STRING=AccountName=name;AccountKey=key==;X=y", "LATTICE_INTERNAL_TOKEN=token", "OTEL_EXPORTER_OTLP_HEADERS=a=one, b=two=",
		"LATTICE_AUTH_JWKS_URL=https://user:word@host/keys", "PATH=/bin", "LATTICE_STORE=memory",
	}, []string{"postgres://u:hush@h/db", "--source=redis://:quiet@h", "--listen=127.0.0.1:0", "SharedAccessSignature=no"})
	if want := []string{"key==", "token", "one", "two=", "word", "hush", "quiet"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = givenSecrets([]string{"AZURE_STORAGE_CONNECTION_STRING=BlobEndpoint=https://h;SharedAccessSignature=sv=1&sig=a%2Bb"}, nil)
	if want := []string{"a+b"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestSecretInTheOutputFailsTheTest: in the first of many lines, in one without
// an end, and named after it was written.
func TestSecretInTheOutputFailsTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		faults int
	}{
		"none":             {`echo all is well`, 0},
		"long ago":         {`echo early-marker-1; seq 5000`, 1},
		"without an end":   {`printf early-marker-1`, 1},
		"on stderr":        {`echo early-marker-1 >&2`, 1},
		"of the variables": {`echo "$LATTICE_TOKEN"`, 1},
	} {
		r := &recorded{TB: t}
		cmd := exec.Command("sh", "-c", c.script)
		cmd.Env = append(Environment(), "LATTICE_TOKEN=given-"+strings.Repeat("x", 20))
		p, err := Supervise(r, cmd)
		if err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
		Secret(t, "early-marker-1")
		if r.end(); len(r.faults) != c.faults {
			t.Errorf("%s: %d faults", name, len(r.faults))
		}
	}
}
