package service

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionIsThatOfTheBuild(t *testing.T) {
	settings := func(pairs ...string) (s []debug.BuildSetting) {
		for i := 0; i+1 < len(pairs); i += 2 {
			s = append(s, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return s
	}
	const commit = "0123456789abcdef0123456789abcdef01234567"
	cases := map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"release":            {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: settings("vcs.revision", commit)}, "v1.2.3"},
		"commit":             {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("vcs.revision", commit, "vcs.modified", "false")}, "devel-0123456789ab"},
		"commit and changes": {debug.BuildInfo{Settings: settings("vcs.revision", commit, "vcs.modified", "true")}, "devel-0123456789ab+dirty"},
		"short revision":     {debug.BuildInfo{Settings: settings("vcs.revision", "12")}, "devel-12"},
		"nothing known":      {debug.BuildInfo{Settings: settings("vcs.modified", "true")}, "devel"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := versionOf(&c.info); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestVersionGivenWinsOverTheBuild(t *testing.T) {
	for given, want := range map[string]string{"v9.9.9": "v9.9.9", "": Version()} {
		i := onMemory(t, func(c *Config) { c.Version = given })
		figures := i.want(200, "GET", "/metrics", "")
		if !strings.Contains(figures, `lattice_build_info{version="`+want+`"} 1`) || want == "" {
			t.Errorf("given %q, version %q is not in the metrics", given, want)
		}
		if document := i.want(200, "GET", "/openapi.json", ""); !strings.Contains(document, `"version":"`+want+`"`) {
			t.Errorf("given %q, version %q is not in the document", given, want)
		}
	}
}
