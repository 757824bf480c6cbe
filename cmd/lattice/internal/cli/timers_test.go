package cli

import (
	"strings"
	"testing"
)

func TestTimersAgainstTheService(t *testing.T) {
	l, migrate := serveTicking(t, nil)
	if out := l.fails(ExitNo, "", "", "timers", "--check").out; strings.Count(out, "late") != 5 || strings.Count(out, "never") != 5 {
		t.Errorf("before any tick:\n%s", out)
	}
	l.ok("", "timers")
	migrate()
	out := l.ok("", "timers")
	lines := strings.Split(out, "\n")
	if !strings.HasPrefix(lines[0], "TIMER         INTERVAL  LAST SUCCESS") || len(lines) != 7 {
		t.Fatalf("after a tick:\n%s", out)
	}
	if f := strings.Fields(lines[2]); f[0] != "migrations" || f[1] != "1s" || f[3] != "ago" || f[4]+f[5] != "ontime" || !strings.HasSuffix(lines[2], "  -") {
		t.Errorf("migrations: %q", lines[2])
	}
	if out := l.ok("", "timers", "--json"); !strings.Contains(out, `{"timer":"migrations","interval":"1s","lateAfter":"3m0s","lastStartedAt":"`) || strings.Count(out, `"late":true`) != 4 {
		t.Errorf("as JSON: %s", out)
	}
	l.fails(ExitNo, "", "", "timers", "--check", "--json")
	for _, timer := range []string{"monitor", "transactions", "checkpoint", "collect"} {
		l.tick(timer)
	}
	l.ok("", "timers", "--check")
}
