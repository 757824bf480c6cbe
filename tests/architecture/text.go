package architecture

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// The words are put together here, so that this file does not object to
// itself.
var (
	unfinished   = regexp.MustCompile(`\b(` + "TO" + "DO" + `|FIX` + "ME" + `|XX` + "X" + `)\b`)
	machinePath  = regexp.MustCompile(`(^|[^\w.])(/home/[a-z][\w-]*/|/root/\w|/Users/[A-Za-z]|/work/(main|shared)\b|/mnt/\w|C:\\Users\\)`)
	resolvedFrom = regexp.MustCompile(`"resolved"\s*:\s*"[a-z+]+:`)
)

// Unfinished finds notes of work that was left undone.
func Unfinished(s *Sources) []Violation {
	return s.matching(unfinished, func(*File) bool { return true }, "a note of unfinished work: %s")
}

// MachinePaths finds paths that exist on somebody's machine alone.
func MachinePaths(s *Sources) []Violation {
	return s.matching(machinePath, func(*File) bool { return true }, "a path of one machine: %s")
}

// LockFiles finds lock files that pin where a package is downloaded from; its
// hash is enough.
func LockFiles(s *Sources) []Violation {
	isLock := func(f *File) bool {
		base := path.Base(f.Path)
		return base == "package-lock.json" || base == "npm-shrinkwrap.json"
	}
	return s.matching(resolvedFrom, isLock, "a download address in a lock file: %s")
}

func (s *Sources) matching(pattern *regexp.Regexp, in func(*File) bool, what string) []Violation {
	var found []Violation
	for _, f := range s.Files {
		if !in(f) {
			continue
		}
		for i, line := range strings.Split(f.Text, "\n") {
			if m := pattern.FindString(line); m != "" {
				found = append(found, Violation{fmt.Sprintf("%s:%d", f.Path, i+1), fmt.Sprintf(what, m)})
			}
		}
	}
	return found
}
