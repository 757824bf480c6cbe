package architecture

// Rule is one rule of the house.
type Rule struct {
	// Name is how a failing test calls it.
	Name string
	// Check returns every breach.
	Check func(*Sources) []Violation
}

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		{"imports point one way", ImportDirection},
		{"core knows no transport, cloud or host", CoreImports},
		{"packages are named for what they hold", PackageNames},
		{"core reads time and chance from its clock", CoreClock},
		{"tests do not sleep", SleepingTests},
		{"tests are not skipped", SkippedTests},
		{"files are short", FileLength},
		{"functions are short", FuncLength},
		{"every package says what it is", PackageComments},
		{"exported names are documented", ExportedComments},
		{"errors are compared with errors.Is", ErrorComparison},
		{"core and providers take the caller's context", DetachedContext},
		{"nothing is left unfinished", Unfinished},
		{"no path of one machine", MachinePaths},
		{"lock files name no download address", LockFiles},
	}
}
