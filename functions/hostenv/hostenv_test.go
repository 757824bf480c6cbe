package hostenv

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
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
	s, err := Read(lookup(map[string]string{"LATTICE_LEASE_DURATION": "20s", TokenVariable: "token"}), base, io.Discard)
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
		for _, env := range []map[string]string{nil, {TokenVariable: ""}} {
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
		"LATTICE_LEASE_DURATION": "soon", "LATTICE_MAX_KEY_LENGTH": "0", LevelVariable: "loud",
	}), options.Default(), io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"LeaseDuration", "MaxKeyLength", "loud"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told in %v", want, err)
		}
	}
}

func TestLogIsJSONOfTheLevelAskedFor(t *testing.T) {
	var log bytes.Buffer
	s, err := Read(lookup(map[string]string{LevelVariable: "warn"}), options.Default(), &log)
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
