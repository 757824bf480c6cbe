package auth

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func reader(name string) Key { return Key{Name: name, Role: RoleReader, Trees: Patterns{"orders*"}} }

func mustKey(t testing.TB, k Key) (secret, line string) {
	t.Helper()
	secret, line, err := NewKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return secret, line
}

func TestNewKeysAreRandomAndKeptAsHashes(t *testing.T) {
	k := Key{
		Name: "orders-1", Role: RoleWriter, Trees: Patterns{"orders*", "a-*.b_c"},
		Limits: Limits{Rate: 2.5, Burst: 7, Concurrent: 3}, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	secret, line := mustKey(t, k)
	other, otherLine := mustKey(t, k)
	if secret == other || len(secret) < 43 || !strings.HasPrefix(secret, keyPrefix) || !keyForm.MatchString(secret) {
		t.Fatalf("keys of %d and %d characters", len(secret), len(other))
	}
	if line == otherLine || strings.Contains(line, secret) || strings.Contains(line, secret[len(keyPrefix):]) {
		t.Fatal("the line is not a salted hash")
	}
	keys, err := parseKeys(line + "\n")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	got := keys[0]
	if got.Name != k.Name || got.Role != k.Role || !slices.Equal(got.Trees, k.Trees) || got.Limits != k.Limits || !got.Expires.Equal(k.Expires) {
		t.Errorf("read %+v, want %+v", got, k)
	}
	if got.line() != line {
		t.Error("the line is not the one that was read")
	}
	if got.hash.matches(fingerprintOf(secret)) != 1 || got.hash.matches(fingerprintOf(other)) != 0 {
		t.Error("the hash is not that of the key")
	}
}

func TestSaltKeepsEqualKeysApart(t *testing.T) {
	secret, line := mustKey(t, reader("a"))
	again, err := HashKey(reader("a"), secret)
	if err != nil || again == line {
		t.Fatalf("the same hash twice: %v", err)
	}
}

func TestWeakKeysAreRefused(t *testing.T) {
	good := "0123456789abcdefghijklmnopqrstuv"
	for name, secret := range map[string]string{
		"short": good[:31], "empty": "", "a password": "correct horse", "repeated": strings.Repeat("abcdefg", 9),
		"too long": strings.Repeat(good, 9), "a dot": good + ".x", "a space": good + " x", "not ASCII": good + "é", "line break": good + "\n",
	} {
		if _, err := HashKey(reader("a"), secret); err == nil || secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := HashKey(reader("a"), good); err != nil {
		t.Error(err)
	}
}

func TestKeysWithoutSenseAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Key){
		"no name":                  func(k *Key) { k.Name = "" },
		"name with a blank":        func(k *Key) { k.Name = "a b" },
		"name of two lines":        func(k *Key) { k.Name = "a\nb" },
		"long name":                func(k *Key) { k.Name = strings.Repeat("a", 65) },
		"no role":                  func(k *Key) { k.Role = RoleNone },
		"unknown role":             func(k *Key) { k.Role = 9 },
		"no trees":                 func(k *Key) { k.Trees = nil },
		"internal key with trees":  func(k *Key) { k.Role = RoleInternal },
		"burst without rate":       func(k *Key) { k.Limits.Burst = 1 },
		"negative rate":            func(k *Key) { k.Limits.Rate = -1 },
		"rate too small to be one": func(k *Key) { k.Limits.Rate = 1e-9 },
		"negative concurrency":     func(k *Key) { k.Limits.Concurrent = -1 },
	} {
		k := reader("a")
		change(&k)
		if secret, line, err := NewKey(k); err == nil || secret != "" || line != "" {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestKeysFilesAreReadStrictly(t *testing.T) {
	secret, line := mustKey(t, reader("a"))
	fields := strings.Fields(line)
	with := func(i int, text string) string {
		f := slices.Clone(fields)
		f[i] = text
		return strings.Join(f, " ")
	}
	bad := map[string]string{
		"the key for its name":    secret,
		"the key for its hash":    with(3, secret),
		"too few fields":          strings.Join(fields[:3], " "),
		"no name":                 with(0, "-a"),
		"unknown role":            with(1, "owner"),
		"role in capitals":        with(1, "Reader"),
		"role none":               with(1, "none"),
		"empty pattern":           with(2, "a,,b"),
		"pattern of a class":      with(2, "[a-z]"),
		"pattern with a slash":    with(2, "a/*"),
		"pattern of the system":   with(2, "_*"),
		"no trees":                with(2, "-"),
		"internal with trees":     with(1, "internal"),
		"hash of another scheme":  with(3, strings.Replace(fields[3], "sha256", "md5", 1)),
		"hash without a salt":     with(3, strings.Replace(fields[3], ":", "::", 1)),
		"short digest":            with(3, fields[3][:len(fields[3])-2]),
		"long digest":             with(3, fields[3]+"AA"),
		"digest with loose bits":  with(3, fields[3][:len(fields[3])-1]+"_"),
		"unknown setting":         line + " colour=red",
		"setting without a value": line + " rate",
		"setting twice":           line + " rate=1 rate=2",
		"rate of no number":       line + " rate=NaN",
		"rate of no bound":        line + " rate=Inf",
		"burst of a fraction":     line + " rate=1 burst=1.5",
		"burst alone":             line + " burst=1",
		"negative":                line + " concurrent=-1",
		"expiry of no time":       line + " expires=tomorrow",
		"the same name":           line + "\n" + line,
		"a long line":             with(2, strings.Repeat("a", maxLineBytes)),
		"a long file":             strings.Repeat("#\n", maxKeysBytes/2+1),
		"many patterns":           with(2, strings.Repeat("a,", maxPatterns)+"a"),
	}
	for name, text := range bad {
		_, err := parseKeys(text)
		switch {
		case err == nil:
			t.Errorf("%s: accepted", name)
		case strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), fields[3]):
			t.Errorf("%s: the error quotes the key: %v", name, err)
		}
	}
	good := "# comment\n\n  " + strings.ReplaceAll(line, " ", "\t ") + "  \r\n" + with(0, "b") + " rate=0.5 expires=2030-01-01T00:00:00Z"
	keys, err := parseKeys(good)
	if err != nil || len(keys) != 2 || keys[1].Limits.Rate != 0.5 {
		t.Errorf("%+v, %v", keys, err)
	}
	var many strings.Builder
	for i := range maxKeys + 1 {
		many.WriteString(with(0, fmt.Sprintf("k%d", i)) + "\n")
	}
	if _, err := parseKeys(many.String()); err == nil || !strings.Contains(err.Error(), "more than 1000 keys") {
		t.Errorf("more keys than are allowed: %v", err)
	}
}

// TestDigestsAreComparedInConstantTime looks at the source: the digest of a
// credential at rest is read by one function besides those that write it, and
// that one hands arrays of one length to subtle.ConstantTimeCompare.
func TestDigestsAreComparedInConstantTime(t *testing.T) {
	uses := map[string]int{}
	compares := map[string]bool{}
	fset := token.NewFileSet()
	for _, name := range []string{"auth.go", "key.go", "keyline.go", "keyring.go", "authenticator.go", "jwt.go", "bearer.go"} {
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if sel.Sel.Name == "digest" {
					uses[fn.Name.Name]++
				}
				if sel.Sel.Name == "ConstantTimeCompare" {
					compares[fn.Name.Name] = true
				}
				return true
			})
		}
	}
	want := []string{"Check", "String", "matches", "newKeyHash", "parseKeyHash"}
	if got := slices.Sorted(maps.Keys(uses)); !slices.Equal(got, want) {
		t.Errorf("digests are touched by %v, want %v", got, want)
	}
	if !compares["matches"] || !compares["Check"] || len(compares) != 2 {
		t.Errorf("constant-time comparisons are in %v", compares)
	}
	var h keyHash
	if len(h.digest) != len(fingerprint{}) || len(h.over(fingerprint{})) != len(h.digest) {
		t.Error("digests differ in length")
	}
}

func TestRolesIncludeEachOther(t *testing.T) {
	all := []Role{RoleNone, RoleReader, RoleWriter, RoleAdmin, RoleInternal}
	// A row a role, a column what is needed.
	want := []string{"00000", "01000", "01100", "01110", "00001"}
	for i, has := range all {
		for j, needs := range all {
			if got := has.Includes(needs); got != (want[i][j] == '1') {
				t.Errorf("%s includes %s: %v", has, needs, got)
			}
		}
		if parsed, err := ParseRole(has.String()); (err == nil) != (has != RoleNone) || parsed != has {
			t.Errorf("%s parses as %s, %v", has, parsed, err)
		}
	}
}

func TestPatternsMatchNamesAsTheyAre(t *testing.T) {
	cases := []struct {
		patterns, tree string
		want           bool
	}{
		{"*", "anything", true}, {"orders*", "orders", true}, {"orders*", "orders-2", true}, {"orders*", "Orders", false},
		{"orders*", "my-orders", false}, {"*-eu", "orders-eu", true}, {"*-eu", "orders-eu2", false}, {"a*c*e", "abcde", true},
		{"a,b", "b", true}, {"a,b", "ab", false}, {"a.b", "axb", false}, {"a", "", false}, {"orders", "orders\x00", false},
		{"a*", "a/b", false}, {"a-b*", "a-b", true}, {"**", "x", true},
	}
	for _, c := range cases {
		p, err := ParsePatterns(c.patterns)
		if err != nil || p.Match(c.tree) != c.want || p.String() != c.patterns {
			t.Errorf("%s on %q: %v, want %v; %v", c.patterns, c.tree, p.Match(c.tree), c.want, err)
		}
	}
	if (Patterns(nil)).Match("a") || (Patterns(nil)).All() || !(Patterns{"a", "*"}).All() || (Patterns{"a*"}).All() {
		t.Error("what is for all trees is not told apart")
	}
}

func FuzzKeysFile(f *testing.F) {
	secret, line := mustKey(f, reader("a"))
	for _, seed := range []string{"", "#", line, line + " rate=1 burst=2 concurrent=3 expires=2030-01-01T00:00:00Z", "a internal - " + strings.Fields(line)[3], line + "\r\n\r\n" + secret} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for i := range keys {
			if err := keys[i].check(); err != nil {
				t.Fatalf("a key that is not valid: %v", err)
			}
			again.WriteString(keys[i].line() + "\n")
		}
		back, err := parseKeys(again.String())
		if err != nil || len(back) != len(keys) {
			t.Fatalf("%q is written as %q, which is %v", text, again.String(), err)
		}
	})
}
