package sqldb

import "testing"

// TestSecretsAreTakenOutWhole: a password is no reason to garble the words that
// hold it, and is not shown where it stands for itself.
func TestSecretsAreTakenOutWhole(t *testing.T) {
	for _, c := range []struct{ secret, text, want string }{
		{"a", "there is no table orders at db.example/shop", "there is no table orders at db.example/shop"},
		{"pw1", "user pw1 is unknown", "user pw1 is unknown"},
		{"data", "the database says: data is bad; metadata, data_1 and 2data are not", "the database says: … is bad; metadata, data_1 and 2data are not"},
		{"hunter2", `syntax error near "hunter2"`, `syntax error near "…"`},
		{"hunter2", "hunter2 hunter22 hunter2", "… hunter22 …"},
		{"grün", "grün und grüne, (grün)", "… und grüne, (…)"},
		{"s%c!", "it says s%c! and s%c!x", "it says … and …x"},
		{"abab", "xababab abab", "xababab …"},
		{"", "cannot use postgres://root:p@host/db", "cannot use postgres://root:…@host/db"},
		{"x", "cannot use host=db password=x user=root", "cannot use host=db password=… user=root"},
		{"x y", "in Password='x y';server=db", "in Password=…;server=db"},
		{"YES1", "denied (using password: YES)", "denied (using password: YES)"},
	} {
		if got := withoutSecrets(c.text, []string{c.secret}); got != c.want {
			t.Errorf("%q in %q became %q, want %q", c.secret, c.text, got, c.want)
		}
	}
}
