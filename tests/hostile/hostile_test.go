package hostile

import (
	"maps"
	"strings"
	"testing"
)

// leastAttacks is how many different requests are sent at least.
const leastAttacks = 100

// TestHostileRequestsAreRefusedWithoutATrace sends every attack to every program
// that listens, and what can be an event to the one that does not, and looks
// whether anything that is stored has changed.
func TestHostileRequestsAreRefusedWithoutATrace(t *testing.T) {
	w := newWorld(t)
	groups := map[string][]attack{
		"tokens": tokenAttacks(w), "forgeries": forgeries(w), "escalations": escalations(w), "roles": roleAttacks(w),
		"paths": pathAttacks(w), "framing": framingAttacks(w), "bodies": bodyAttacks(w), "handed out": tokenedAttacks(w),
	}
	w.controls()
	// What the controls read is counted, for splits, and that is written later.
	before := w.snapshot()
	maps.DeleteFunc(before, isCounter)
	names, bytes := map[string]bool{}, map[string]string{}
	for group, attacks := range groups {
		t.Run(group, func(t *testing.T) {
			for i := range attacks {
				a := &attacks[i]
				if names[a.name] {
					t.Errorf("two attacks are called %s", a.name)
				}
				if other := bytes[a.raw]; other != "" {
					t.Errorf("%s is the same as %s", a.name, other)
				}
				names[a.name], bytes[a.raw] = true, a.name
				a.remember(t)
				for _, target := range w.targets {
					t.Run(a.name+" at "+target.name, func(t *testing.T) { a.judge(t, exchange(t, target.address, a.raw)) })
				}
			}
		})
	}
	if len(bytes) < leastAttacks {
		t.Errorf("%d attacks", len(bytes))
	}
	t.Logf("%d attacks at %d programs", len(bytes), len(w.targets))
	t.Run("events", func(t *testing.T) { w.hostileEvents(t, groups) })
	w.unchanged(before, isCounter)
	w.alive()
}

// controls shows that the credentials are good where they belong: without that a
// refusal would mean nothing.
func (w *world) controls() {
	w.t.Helper()
	for _, target := range w.targets {
		for name, status := range map[string]int{"writer orders*": 201, "reader orders*": 200, "admin *": 200, "internal": 200} {
			method, path := "GET", "/v1/trees/orders-1/keys/a"
			switch name {
			case "writer orders*":
				method, path = "PUT", "/v1/trees/orders-1/keys/control-"+strings.ReplaceAll(target.name, "/", "-")
			case "internal":
				path = "/metrics"
			}
			if got := call(w.t, target.address, w.keys[name], method, path, "", "control"); got.Status != status {
				w.t.Fatalf("%s: %s %s at %s: %d %s", name, method, path, target.name, got.Status, got.Body)
			}
		}
		token := w.issuer.Sign(w.t, "rsa", claims(nil))
		if got := call(w.t, target.address, token, "GET", "/v1/trees/orders-1/keys/a", "", ""); got.Status != 200 {
			w.t.Fatalf("a token at %s: %d %s", target.name, got.Status, got.Body)
		}
	}
}

// alive shows that the programs serve as before.
func (w *world) alive() {
	w.t.Helper()
	for _, target := range w.targets {
		got := call(w.t, target.address, w.keys["reader orders*"], "GET", "/v1/trees/orders-1/keys/a", "", "")
		if got.Status != 200 || got.Body != valueMarker || got.Header.Get("ETag") != w.stolen.version {
			w.t.Errorf("%s answers %d %q with %s, want version %s", target.name, got.Status, got.Body, got.Header.Get("ETag"), w.stolen.version)
		}
	}
}
