package service

import "runtime/debug"

// stamped is set by the linker where the sources come without their repository:
// -ldflags '-X github.com/latticekv/lattice/functions/service.stamped=…'.
var stamped string

// Version is what the build says of the program: what the linker was told, the
// version of the module, which names the commit, or "devel" where the build does
// not tell.
func Version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versionOf(&debug.BuildInfo{})
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + changed
}
