package hostenv

import "testing"

func TestArgumentsAreRefused(t *testing.T) {
	if err := NoArguments(nil); err != nil {
		t.Error(err)
	}
	if err := NoArguments([]string{"--help"}); err == nil {
		t.Error("an argument that nobody reads was taken")
	}
}
