package delta

import "fmt"

// settings are what makes two runs the same pass.
type settings struct {
	Source string `json:"source"`
	// Name is what of the source's identity stays while it changes.
	Name    string `json:"name,omitempty"`
	Target  string `json:"target"`
	Mapping string `json:"mapping"`
	Since   string `json:"since"`
	Deletes bool   `json:"deletes"`
	Prefix  string `json:"prefix"`
}

// difference is the first setting that differs between two passes.
type difference struct {
	what, was, is string
	// covered says that a pass with the new settings writes all that the former
	// one would have, so that nothing is lost by not ending it. No cut is
	// recorded before the end.
	covered bool
}

// String is the difference as a clause.
func (d difference) String() string {
	return fmt.Sprintf("%s was %s and is now %s", d.what, d.was, d.is)
}

// difference compares two settings that are not the same.
func (s *settings) difference(now *settings) difference {
	given := map[bool]string{false: "not given", true: "given"}
	sameSource := s.Source == now.Source || s.Name != "" && s.Name == now.Name
	switch {
	case !sameSource:
		return difference{"the source", s.Source, now.Source, false}
	case s.Target != now.Target:
		return difference{"the tree", s.Target, now.Target, false}
	case s.Mapping != now.Mapping:
		return difference{"what makes keys and values", s.Mapping, now.Mapping, false}
	case s.Since != now.Since:
		return difference{"the cut", orNone(s.Since), orNone(now.Since), false}
	case s.Source != now.Source:
		return difference{"the source", s.Source, now.Source, true}
	case s.Deletes != now.Deletes:
		return difference{"--deletes", given[s.Deletes], given[now.Deletes], true}
	}
	return difference{"--target-prefix", fmt.Sprintf("%q", s.Prefix), fmt.Sprintf("%q", now.Prefix), true}
}

func orNone(cut string) string {
	if cut == "" {
		return "none"
	}
	return fmt.Sprintf("%q", cut)
}
