package hostenv

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/auth"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, ok := env[name]
		return text, ok
	}
}

func TestEnvironmentIsLaidOverTheBase(t *testing.T) {
	base := options.Default()
	base.MaxPageBytes = 1 << 20
	s, err := Read(lookup(map[string]string{"LATTICE_LEASE_DURATION": "20s", TokenVariable: "token", "LATTICE_INSECURE_NO_AUTH": "true"}), base, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if s.Options.LeaseDuration != 20*time.Second || s.Options.MaxPageBytes != 1<<20 || s.Token != "token" {
		t.Fatalf("%+v", s)
	}
	if s.Options.Leases {
		t.Error("leases are on where many instances serve")
	}
}

func TestTokenIsDrawnForEachProcess(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		for _, env := range []map[string]string{{"LATTICE_INSECURE_NO_AUTH": "true"}, {"LATTICE_INSECURE_NO_AUTH": "true", TokenVariable: ""}} {
			s, err := Read(lookup(env), options.Default(), io.Discard)
			if err != nil || len(s.Token) < 26 || seen[s.Token] {
				t.Fatalf("token %q, %v", s.Token, err)
			}
			seen[s.Token] = true
		}
	}
}

func TestEveryFaultIsTold(t *testing.T) {
	_, err := Read(lookup(map[string]string{
		"LATTICE_LEASE_DURATION": "soon", "LATTICE_MAX_KEY_LENGTH": "0", LevelVariable: "loud", "LATTICE_AUTH_JWT_LEEWAY": "long",
	}), options.Default(), io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"LeaseDuration", "MaxKeyLength", "loud", "LATTICE_AUTH_JWT_LEEWAY"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told in %v", want, err)
		}
	}
}

func TestCredentialsAreDemanded(t *testing.T) {
	secret, line, err := auth.NewKey(auth.Key{Name: "reports", Role: auth.RoleReader, Trees: auth.Patterns{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		env  map[string]string
		on   bool
		want string
	}{
		"nothing":       {nil, false, "no credentials are configured"},
		"said to be so": {map[string]string{auth.InsecureVariable: "true"}, false, ""},
		"said not so":   {map[string]string{auth.InsecureVariable: "false"}, false, "no credentials are configured"},
		"a key":         {map[string]string{auth.KeysVariable: line}, true, ""},
		"both":          {map[string]string{auth.KeysVariable: line, auth.InsecureVariable: "true"}, false, "which one is meant"},
		"the key bare":  {map[string]string{auth.KeysVariable: secret}, false, "line 1"},
		"blanks":        {map[string]string{auth.KeysVariable: "  "}, false, "no credentials are configured"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := Read(lookup(c.env), options.Default(), io.Discard)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if (s.Auth != nil) != c.on {
				t.Errorf("credentials are asked for: %v", s.Auth != nil)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error tells the key: %v", err)
			}
		})
	}
}

func TestLogIsJSONOfTheLevelAskedFor(t *testing.T) {
	var log bytes.Buffer
	s, err := Read(lookup(map[string]string{LevelVariable: "warn", "LATTICE_INSECURE_NO_AUTH": "true"}), options.Default(), &log)
	if err != nil {
		t.Fatal(err)
	}
	s.Logger.Info("quiet")
	s.Logger.Warn("loud")
	var entry struct{ Msg string }
	if err := json.Unmarshal(log.Bytes(), &entry); err != nil || entry.Msg != "loud" {
		t.Fatalf("logged %s: %v", log.Bytes(), err)
	}
}
