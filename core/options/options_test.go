package options

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
	"pgregory.net/rapid"
)

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	o := Default()
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"AutoCreateTrees", o.AutoCreateTrees, true},
		{"DefaultShardCount", o.DefaultShardCount, 4},
		{"MaxKeyLength", o.MaxKeyLength, 1024},
		{"MaxValueSizeBytes", o.MaxValueSizeBytes, int64(64 << 20)},
		{"InlineValueBytes", o.InlineValueBytes, int64(256 << 10)},
		{"Leases", o.Leases, false},
		{"LeaseDuration", o.LeaseDuration, 10 * time.Second},
		{"MergeRatio", o.MergeRatio, 0.5},
		{"TombstoneGracePeriod", o.TombstoneGracePeriod, 24 * time.Hour},
		{"SoftDeleteDuration", o.SoftDeleteDuration, 72 * time.Hour},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}
	if err := o.Validate(); err != nil {
		t.Errorf("the defaults do not validate: %v", err)
	}
}

func TestEveryOptionIsFullyDescribed(t *testing.T) {
	docs := map[string]bool{}
	for _, d := range Describe() {
		if d.Doc == "" || docs[d.Doc] || strings.HasSuffix(d.Doc, ".") {
			t.Errorf("%s has no doc line of its own: %q", d.Name, d.Doc)
		}
		docs[d.Doc] = true
		if d.Kind != KindBool && (d.Min == "" || d.Max == "") {
			t.Errorf("%s has no bounds", d.Name)
		}
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(d.Flag) {
			t.Errorf("%s has the flag %q", d.Name, d.Flag)
		}
		if got, ok := Lookup(d.Name); !ok || got.Env != d.Env {
			t.Errorf("%s cannot be looked up", d.Name)
		}
	}
	if len(Names()) != len(docs) {
		t.Errorf("%d names for %d options", len(Names()), len(docs))
	}
}

func TestSpellingsFollowTheName(t *testing.T) {
	d, ok := Lookup("LeaseContentionBackoff")
	if !ok || d.Flag != "lease-contention-backoff" || d.Env != "LATTICE_LEASE_CONTENTION_BACKOFF" {
		t.Errorf("got flag %q, env %q", d.Flag, d.Env)
	}
	if _, ok := Lookup("leaseContentionBackoff"); ok {
		t.Error("a name in another case was found")
	}
}

func TestBoundsFitTheStorageContract(t *testing.T) {
	for name, limit := range map[string]float64{
		"InlineValueBytes":    store.MaxRowBytes,
		"GroupCommitMaxBytes": store.MaxTransactionBytes,
		"MaxValueSizeBytes":   store.MaxBlobBytes,
	} {
		if d, _ := Lookup(name); d.max > limit {
			t.Errorf("%s may reach %v, the storage takes %v", name, d.max, limit)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "90": 90 * time.Second, "0.5": 500 * time.Millisecond,
		"1m30s": 90 * time.Second, "0": 0, "250ms": 250 * time.Millisecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q gives %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "-1s", "1e300", "NaN", "Inf", "10 s", "99999999999"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q was taken for %v", text, got)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "64MiB": 64 << 20, "64 mib": 64 << 20, "1KB": 1000, "12b": 12, "1TiB": 1 << 40,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q gives %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "9999999999TiB", "1PiB", "0x10"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q was taken for %d", text, got)
		}
	}
}

func TestSizesPrintedAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		if got, err := ParseBytes(formatBytes(n)); err != nil || got != n {
			t.Fatalf("%s gives %d, %v", formatBytes(n), got, err)
		}
	})
}

func TestSetTakesEveryKindAndRefusesNonsense(t *testing.T) {
	o := Default()
	for name, text := range map[string]string{
		"AutoCreateTrees": "false", "MaxScanRetries": "7", "CacheBytes": "2GiB", "LeaseDuration": "20", "MergeRatio": "0.25",
	} {
		if err := o.Set(name, text); err != nil {
			t.Errorf("set %s: %v", name, err)
		}
		if o.Origin(name) != OriginService {
			t.Errorf("%s has origin %s", name, o.Origin(name))
		}
	}
	if o.AutoCreateTrees || o.MaxScanRetries != 7 || o.CacheBytes != 2<<30 || o.LeaseDuration != 20*time.Second || o.MergeRatio != 0.25 {
		t.Errorf("values were lost: %+v", o)
	}
	for name, text := range map[string]string{
		"AutoCreateTrees": "maybe", "MaxScanRetries": "1.5", "CacheBytes": "big", "LeaseDuration": "soon", "MergeRatio": "NaN", "Nonsense": "1",
	} {
		before := o
		err := o.Set(name, text)
		if fs := Faults(err); len(fs) != 1 || fs[0].Name != name {
			t.Errorf("set %s to %q: %v", name, text, err)
		}
		if o.Origin(name) != before.Origin(name) {
			t.Errorf("a refused value of %s left a trace", name)
		}
	}
}

func TestValidateReportsAllFaultsAtOnce(t *testing.T) {
	o := Default()
	o.DefaultShardCount = 0
	o.DefaultPageEntries = o.MaxPageEntries + 1
	o.MaxValueSizeBytes = 65 << 20
	var names []string
	for _, f := range Faults(o.Validate()) {
		names = append(names, f.Name)
	}
	want := []string{"DefaultShardCount", "MaxValueSizeBytes", "DefaultPageEntries"}
	if !slices.Equal(names, want) {
		t.Errorf("faults in %v, want %v", names, want)
	}
}

func TestEveryRelationIsEnforced(t *testing.T) {
	for name, breakIt := range map[string]func(*Options){
		"DefaultPageEntries": func(o *Options) { o.MaxPageEntries = 10 },
		"InlineValueBytes":   func(o *Options) { o.GroupCommitMaxBytes = 64 << 10 },
		"MaxClockSkew":       func(o *Options) { o.LeaseDuration, o.MaxClockSkew = time.Second, 500*time.Millisecond },
		"RoutingRetryBudget": func(o *Options) { o.RequestTimeout = time.Second },
		"MaxBufferedBytes":   func(o *Options) { o.MaxBulkChunkBytes, o.MaxBufferedBytes = 1<<20, 3*64<<20-1 },
		"WalGracePeriod":     func(o *Options) { o.BlobGracePeriod = time.Second },
		"SnapshotCursorTtl": func(o *Options) {
			o.LeaseDuration, o.MaxClockSkew, o.SnapshotCursorTtl = time.Minute, 10*time.Second, 40*time.Second
		},
	} {
		o := Default()
		breakIt(&o)
		if fs := Faults(o.Validate()); len(fs) != 1 || fs[0].Name != name {
			t.Errorf("%s: got %v", name, o.Validate())
		}
	}
	if len(relations) != 7 {
		t.Errorf("%d relations: add the new ones to this test", len(relations))
	}
}

func TestBoundsAreInclusive(t *testing.T) {
	for _, d := range Describe() {
		for _, text := range []string{d.Min, d.Max} {
			if text == "" {
				continue
			}
			o := Default()
			if err := o.Set(d.Name, text); err != nil {
				t.Fatalf("%s: %v", d.Name, err)
			}
			if reason := d.outOfBounds(d.field(&o).Interface()); reason != "" {
				t.Errorf("%s refuses its own bound: %s", d.Name, reason)
			}
		}
	}
}

func TestEnvironmentSetsAndReportsEveryFault(t *testing.T) {
	env := map[string]string{
		"LATTICE_LEASES": "true", "LATTICE_CACHE_BYTES": "1MiB", "LATTICE_TICK_BUDGET": "never", "LATTICE_MAX_SCAN_RETRIES": "x", "PATH": "/bin",
	}
	o := Default()
	err := o.SetFromEnv(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	if !o.Leases || o.CacheBytes != 1<<20 {
		t.Errorf("good values were not taken: %+v", o)
	}
	if fs := Faults(err); len(fs) != 2 || fs[0].Name != "MaxScanRetries" || fs[1].Name != "TickBudget" {
		t.Errorf("faults: %v", err)
	}
}

func TestFlagsSetOptions(t *testing.T) {
	o := Default()
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o.AddFlags(fs)
	if err := fs.Parse([]string{"--leases", "--cache-bytes=8MiB", "-tick-budget", "3s", "--auto-create-trees=false"}); err != nil {
		t.Fatal(err)
	}
	if !o.Leases || o.CacheBytes != 8<<20 || o.TickBudget != 3*time.Second || o.AutoCreateTrees {
		t.Errorf("got %+v", o)
	}
	if err := fs.Parse([]string{"--merge-ratio=alot"}); err == nil {
		t.Error("nonsense was taken")
	}
	fs.PrintDefaults() // calls String on zero values
}

func TestForTreeLaysTreeSettingsOverTheService(t *testing.T) {
	service := Default()
	service.MaxPageBytes = 1 << 20
	o, err := service.ForTree(map[string]json.RawMessage{
		"SoftDeleteDuration": json.RawMessage(`"1h"`), "TombstoneGracePeriod": json.RawMessage(`90.5`),
		"InlineValueBytes": json.RawMessage(`"4KiB"`), "CheckpointTailBytes": json.RawMessage(`2e6`), "CheckpointTailRows": json.RawMessage(` 7 `),
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.SoftDeleteDuration != time.Hour || o.TombstoneGracePeriod != 90500*time.Millisecond || o.InlineValueBytes != 4<<10 ||
		o.CheckpointTailBytes != 2000000 || o.CheckpointTailRows != 7 {
		t.Errorf("got %+v", o)
	}
	for name, want := range map[string]Origin{"SoftDeleteDuration": OriginTree, "MaxPageBytes": OriginService, "Leases": OriginDefault} {
		if o.Origin(name) != want {
			t.Errorf("%s has origin %s, want %s", name, o.Origin(name), want)
		}
	}
	if service.Origin("SoftDeleteDuration") != OriginDefault {
		t.Error("the service's own options changed")
	}
}

func TestForTreeRefusesBadSettings(t *testing.T) {
	for _, c := range []struct{ name, raw, reason string }{
		{"Nonsense", `1`, "no such option"},
		{"CacheBytes", `1048576`, "cannot be set for one tree"},
		{"MaxScanRetries", `"3"`, "must be a whole number, not a string"},
		{"MaxScanRetries", `1.5`, "must be a whole number"},
		{"MaxScanRetries", `true`, "must be a whole number"},
		{"MaxScanRetries", `101`, "not between"},
		{"MaxScanRetries", `-1`, "not between"},
		{"SoftDeleteDuration", `"soon"`, "not a duration"},
		{"SoftDeleteDuration", `-1`, "out of range"},
		{"SoftDeleteDuration", `{}`, "must be a duration"},
		{"SoftDeleteDuration", `null`, "must be a duration"},
		{"InlineValueBytes", `[1]`, "must be a number of bytes"},
		{"InlineValueBytes", `1e300`, "must be a number of bytes"},
		{"InlineValueBytes", ``, "not a JSON value"},
		{"InlineValueBytes", `1 2`, "not a JSON value"},
	} {
		_, err := Default().ForTree(map[string]json.RawMessage{c.name: json.RawMessage(c.raw)})
		if fs := Faults(err); len(fs) != 1 || fs[0].Name != c.name || !strings.Contains(fs[0].Reason, c.reason) {
			t.Errorf("%s = %s: got %v, want %q", c.name, c.raw, err, c.reason)
		}
	}
}

func TestForTreeChecksRelationsAgainstTheService(t *testing.T) {
	service := Default()
	service.GroupCommitMaxBytes = 64 << 10
	service.InlineValueBytes = 1 << 10
	_, err := service.ForTree(map[string]json.RawMessage{"InlineValueBytes": json.RawMessage(`"128KiB"`)})
	if fs := Faults(err); len(fs) != 1 || fs[0].Name != "InlineValueBytes" {
		t.Errorf("got %v", err)
	}
}

func TestPatchMergesRemovesAndCanonicalises(t *testing.T) {
	old := map[string]json.RawMessage{"MaxScanRetries": json.RawMessage(`1`), "InlineValueBytes": json.RawMessage(`1024`)}
	got, err := Default().Patch(old, map[string]json.RawMessage{
		"MaxScanRetries": json.RawMessage(`null`), "SoftDeleteDuration": json.RawMessage(`3600`), "CheckpointTailBytes": json.RawMessage(`"2MiB"`),
	})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(got)
	if string(text) != `{"CheckpointTailBytes":2097152,"InlineValueBytes":1024,"SoftDeleteDuration":"1h0m0s"}` {
		t.Errorf("got %s", text)
	}
	if len(old) != 2 || string(old["MaxScanRetries"]) != "1" {
		t.Errorf("the old settings changed: %v", old)
	}
}

func TestPatchReportsEveryBadName(t *testing.T) {
	_, err := Default().Patch(nil, map[string]json.RawMessage{
		"Nonsense": json.RawMessage(`null`), "CacheBytes": json.RawMessage(`null`), "MaxScanRetries": json.RawMessage(`1`),
	})
	if fs := Faults(err); len(fs) != 2 || fs[0].Name != "CacheBytes" || fs[1].Name != "Nonsense" {
		t.Errorf("got %v", err)
	}
}

func TestPatchOfCanonicalSettingsChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 100).Draw(t, "retries")
		raw, _ := json.Marshal(n)
		ms, _ := json.Marshal(float64(rapid.IntRange(0, 1e8).Draw(t, "ms")) / 1000)
		once, err := Default().Patch(nil, map[string]json.RawMessage{"MaxScanRetries": raw, "TombstoneGracePeriod": ms})
		if err != nil {
			if len(Faults(err)) == 0 {
				t.Fatalf("not a fault: %v", err)
			}
			return
		}
		twice, err := Default().Patch(once, once)
		if err != nil || string(twice["TombstoneGracePeriod"]) != string(once["TombstoneGracePeriod"]) {
			t.Fatalf("%s became %s, %v", once, twice, err)
		}
	})
}

func TestValuesShowEveryOptionInJSONForm(t *testing.T) {
	o, err := Default().ForTree(map[string]json.RawMessage{"MaxScanRetries": json.RawMessage(`9`)})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Value{}
	for _, v := range o.Values() {
		found[v.Name] = v
	}
	if len(found) != len(Names()) {
		t.Errorf("%d values of %d options", len(found), len(Names()))
	}
	if v := found["MaxScanRetries"]; v.Value != 9 || v.Origin != OriginTree {
		t.Errorf("MaxScanRetries: %+v", v)
	}
	if v := found["LeaseDuration"]; v.Value != "10s" || v.Origin != OriginDefault {
		t.Errorf("LeaseDuration: %+v", v)
	}
}

func TestFaultsOfForeignErrorsAreNone(t *testing.T) {
	if fs := Faults(errors.New("x")); fs != nil {
		t.Errorf("got %v", fs)
	}
	if fs := Faults(nil); fs != nil {
		t.Errorf("got %v", fs)
	}
}

func FuzzJSONValuesNeverPanic(f *testing.F) {
	for _, seed := range []string{`1`, `"1s"`, `null`, `{`, ``, `"`, `-0`, `1e999`, `true`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, name := range []string{"MaxScanRetries", "InlineValueBytes", "SoftDeleteDuration"} {
			o, err := Default().ForTree(map[string]json.RawMessage{name: json.RawMessage(raw)})
			if err == nil && o.Validate() != nil {
				t.Errorf("%s = %q passed without being valid", name, raw)
			}
		}
	})
}
