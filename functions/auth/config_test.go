package auth

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, ok := env[name]
		return text, ok
	}
}

// jwtConfig is what tests change.
func jwtConfig(url string) Config {
	c, err := FromEnv(lookup(map[string]string{
		"LATTICE_AUTH_JWT_ISSUER": "https://issuer.example", "LATTICE_AUTH_JWT_AUDIENCE": "lattice", "LATTICE_AUTH_JWKS_URL": url,
	}))
	if err != nil {
		panic(err)
	}
	return c
}

func TestEnvironmentSetsEveryField(t *testing.T) {
	env, want := map[string]string{}, Config{}
	v := reflect.ValueOf(&want).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("env")
		if !strings.HasPrefix(name, "LATTICE_") {
			t.Fatalf("%s cannot be set from the environment", v.Type().Field(i).Name)
		}
		text := map[reflect.Kind]string{reflect.String: name, reflect.Bool: "true", reflect.Int: "7", reflect.Float64: "2.5", reflect.Int64: "7s"}[v.Field(i).Kind()]
		env[name] = text
		if err := setField(v.Field(i), text); err != nil || v.Field(i).IsZero() {
			t.Fatalf("%s: %v", name, err)
		}
	}
	got, err := FromEnv(lookup(env))
	if err != nil || got != want {
		t.Errorf("got %+v, want %+v, %v", got, want, err)
	}
	for name := range env {
		env[name] = "?"
	}
	_, err = FromEnv(lookup(env))
	for _, name := range []string{"LEEWAY", "MAX_AGE", "RATE", "BURST", "CONCURRENT", "PUBLIC_METRICS", "NO_AUTH"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not told in %v", name, err)
		}
	}
}

// TestDocumentNamesEverySetting compares docs/security.md with the fields.
func TestDocumentNamesEverySetting(t *testing.T) {
	b, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{KeysVariable: true}
	for f := range reflect.TypeFor[Config]().Fields() {
		known[f.Tag.Get("env")] = true
		if flag := f.Tag.Get("name"); flag != "" {
			known["--"+flag] = true
		}
	}
	text := string(b)
	for name := range known {
		if !regexp.MustCompile(regexp.QuoteMeta(name) + `\b[^-_]`).MatchString(text) {
			t.Errorf("%s is not in the document", name)
		}
	}
	for _, name := range regexp.MustCompile(`(--auth-[a-z-]+|LATTICE_AUTH_[A-Z_]+)`).FindAllString(text, -1) {
		if !known[name] {
			t.Errorf("the document names %s, which does not exist", name)
		}
	}
}

func TestDefaultsAskForNothing(t *testing.T) {
	c, err := FromEnv(lookup(nil))
	want := Config{JWTAlgorithms: "RS256,ES256,EdDSA", JWTLeeway: 30 * time.Second, JWTRoleClaim: "roles"}
	if err != nil || c != want || c.Configured() || c.Check() != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConfigurationsWithoutSenseAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no issuer":            func(c *Config) { c.JWTIssuer = "" },
		"no audience":          func(c *Config) { c.JWTAudience = "" },
		"no address":           func(c *Config) { c.JWKSURL = "" },
		"plain HTTP":           func(c *Config) { c.JWKSURL = "http://issuer.example/keys" },
		"like this machine":    func(c *Config) { c.JWKSURL = "http://localhost.example/keys" },
		"a file":               func(c *Config) { c.JWKSURL = "file:///etc/keys" },
		"no URL":               func(c *Config) { c.JWKSURL = "https://" },
		"a password":           func(c *Config) { c.JWKSURL = "https://u:p@issuer.example/keys" },
		"algorithm none":       func(c *Config) { c.JWTAlgorithms = "RS256,none" },
		"symmetric":            func(c *Config) { c.JWTAlgorithms = "HS256" },
		"algorithm in small":   func(c *Config) { c.JWTAlgorithms = "rs256" },
		"no algorithm":         func(c *Config) { c.JWTAlgorithms = " , " },
		"negative leeway":      func(c *Config) { c.JWTLeeway = -1 },
		"great leeway":         func(c *Config) { c.JWTLeeway = MaxLeeway + 1 },
		"negative age":         func(c *Config) { c.JWTMaxAge = -1 },
		"no role claim":        func(c *Config) { c.JWTRoleClaim = "" },
		"a blank in a claim":   func(c *Config) { c.JWTTreesClaim = "a b" },
		"burst without a rate": func(c *Config) { c.JWTBurst = 1 },
		"and yet none":         func(c *Config) { c.InsecureNoAuth = true },
	} {
		c := jwtConfig("https://issuer.example/keys")
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if a, err := New(c, newHandClock(), nil); err == nil || a != nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, url := range []string{"http://127.0.0.1:1/k", "http://[::1]/k", "http://localhost/k", "https://issuer.example"} {
		if c := jwtConfig(url); c.Check() != nil {
			t.Errorf("%s: %v", url, c.Check())
		}
	}
}
