package infra

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/schedule"
)

// hostSettings are what the Functions host reads; a setting that holds a key is
// not among them.
var hostSettings = []string{
	"AzureWebJobsDisableHomepage", "AzureWebJobsStorage__accountName", "AzureWebJobsStorage__credential", "AzureWebJobsStorage__clientId",
	"APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
}

// settingsOf returns the keys of a variable that holds settings, or sometimes
// does.
func settingsOf(d declaration) (keys []string) {
	d.value.walk(func(n node) {
		if n.Kind() == "object_property" {
			keys = append(keys, n.children()[0].text())
		}
	})
	return keys
}

// appSettings objects to settings that nobody reads, and to such as are missing.
func appSettings(a *azure) (found []string) {
	b := (*breaches)(&found)
	var set []string
	merged := a.app.find("resource", "appSettings").value.said("properties")
	for _, d := range a.app.all("var") {
		known := a.known
		if d.name == "hostSettings" {
			known = hostSettings
		}
		for _, key := range settingsOf(d) {
			if !slices.Contains(known, key) {
				b.add("%s:%d: nobody reads the setting %s", a.app.path, d.line, key)
			}
			set = append(set, key)
		}
		if !strings.Contains(merged, d.name) {
			b.add("%s:%d: %s do not get into the app", a.app.path, d.line, d.name)
		}
	}
	if !strings.HasPrefix(merged, "union(hostSettings, serviceSettings,") || !strings.HasSuffix(merged, ", settings)") {
		b.add("the settings of the app are %s", merged)
	}
	for _, name := range append(configured(), hostSettings...) {
		// The account is named by the addresses of its services, in every cloud.
		absent := notInTemplates[name] != "" || slices.Contains([]string{"LATTICE_ACCOUNT", "AZURE_STORAGE_CONNECTION_STRING", "LATTICE_INSECURE_NO_AUTH"}, name)
		if slices.Contains(set, name) == absent {
			b.add("the setting %s: set %t", name, !absent)
		}
	}
	for _, must := range []string{"AZURE_CLIENT_ID", "AZURE_TOKEN_CREDENTIALS"} {
		if !slices.Contains(set, must) {
			b.add("the app is not told its identity by %s", must)
		}
	}
	return found
}

var sizes = regexp.MustCompile(`\d+`)

// memory objects to settings that are none for some size of the instances, or
// that fill it.
func memory(a *azure) (found []string) {
	b := (*breaches)(&found)
	service := a.app.find("var", "serviceSettings").value
	offered := sizes.FindAllString(a.main.find("param", "instanceMemoryMB").about["allowed"], -1)
	if len(offered) == 0 {
		b.add("no size of instances is offered")
	}
	for _, text := range offered {
		size, _ := strconv.Atoi(text)
		o := options.Default()
		cache := strings.Replace(service.at("LATTICE_CACHE_BYTES").unquoted(), "${instanceMemoryMB / 4}", strconv.Itoa(size/4), 1)
		loads := strings.Replace(service.said("LATTICE_MAX_BULK_LOADS"), "string(instanceMemoryMB / 512)", strconv.Itoa(size/512), 1)
		if err := errorsOf(o.Set("CacheBytes", cache), o.Set("MaxBulkLoads", loads), o.Validate()); err != "" {
			b.add("with %d MB: %s", size, err)
			continue
		}
		if full := o.CacheBytes + int64(o.MaxBulkLoads)*o.BulkLoadBufferBytes + o.MaxBufferedBytes; full > int64(size)<<20*3/4 {
			b.add("caches, bulk loads and bodies may fill %d MB", size)
		}
	}
	return found
}

func errorsOf(errs ...error) string {
	var all []string
	for _, err := range errs {
		if err != nil {
			all = append(all, err.Error())
		}
	}
	return strings.Join(all, "; ")
}

var quoted = regexp.MustCompile(`'([^']*)'`)

// failureText is how the custom handler's log calls a timer that failed.
const failureText = "timer failed"

// alerts objects to rules that look for what does not exist.
func alerts(a *azure) (found []string) {
	b := (*breaches)(&found)
	var timers []string
	for _, m := range quoted.FindAllStringSubmatch(a.alerts.find("var", "timers").value.text(), -1) {
		timers = append(timers, m[1])
	}
	if !slices.Equal(timers, schedule.Names()) {
		b.add("the timers are %q, want %q", timers, schedule.Names())
	}
	rules := map[string]node{}
	for _, rule := range a.alerts.find("var", "logRules").value.children() {
		rules[rule.at("name").unquoted()] = rule
	}
	for name, wants := range map[string][]string{
		"server-errors":  {"AppRequests", "toint(ResultCode) >= 500"},
		"timer-failures": {"AppTraces", `has "` + failureText + `"`},
		"timers-missing": {"${timerList}", "leftanti", "AppRequests"},
	} {
		for _, want := range append(wants, `AppRoleName =~ "${appName}"`) {
			if !strings.Contains(rules[name].said("query"), want) {
				b.add("the rule %s does not ask for %s", name, want)
			}
		}
	}
	window, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(rules["timers-missing"].at("window").unquoted(), "PT")))
	for _, t := range schedule.All() {
		if o := options.Default(); err != nil || window < t.LateAfter(&o) {
			b.add("timer %s is missed after %s, which is no more than late", t.Name, window)
		}
	}
	for _, metric := range []string{"'Microsoft.Insights/metricAlerts", "'Microsoft.Insights/scheduledQueryRules"} {
		if !strings.Contains(a.alerts.root.text(), metric) {
			b.add("no alert of type %s", metric)
		}
	}
	throttling := a.alerts.find("resource", "storageThrottling").value.text()
	for _, want := range []string{"'table'", "'blob'", "metricName: 'Transactions'", "values: throttled", "actionGroupIds"} {
		if !strings.Contains(throttling, want) {
			b.add("the alert of throttling lacks %s", want)
		}
	}
	b.want("who is notified", a.alerts.find("resource", "logAlerts").value.said("properties", "actions", "actionGroups"), "actionGroupIds")
	return found
}

// builtins are the functions and namespaces of the language that are used.
var builtins = []string{"resourceGroup", "uniqueString", "guid", "subscriptionResourceId", "empty", "union", "string", "join", "map"}

// references objects to names that nothing declares, to modules that get other
// parameters than they have, and to what is declared and not used.
func references(a *azure) (found []string) {
	b := (*breaches)(&found)
	for _, f := range a.files() {
		declared, used := map[string]bool{}, map[string]bool{}
		for _, d := range f.declarations {
			declared[d.name] = true
		}
		f.root.walk(func(n node) { f.note(n, declared, used) })
		for name := range used {
			if !declared[name] && !slices.Contains(builtins, name) {
				b.add("%s: nothing is called %s", f.path, name)
			}
		}
		for _, d := range slices.Concat(f.all("param"), f.all("var")) {
			if !used[d.name] {
				b.add("%s:%d: nobody uses %s", f.path, d.line, d.name)
			}
		}
	}
	modules := map[string]*bicep{"data.bicep": a.data, "app.bicep": a.app, "alerts.bicep": a.alerts}
	for _, d := range a.main.all("module") {
		callee := modules[d.typ]
		if callee == nil {
			b.add("%s:%d: there is no module %s", a.main.path, d.line, d.typ)
			continue
		}
		var given []string
		for _, p := range d.value.at("params").properties() {
			given = append(given, p.key)
		}
		for _, p := range callee.all("param") {
			if i := slices.Index(given, p.name); i >= 0 {
				given = slices.Delete(given, i, i+1)
			} else if p.value.Node == nil {
				b.add("%s:%d: module %s does not get its parameter %s", a.main.path, d.line, d.name, p.name)
			}
		}
		for _, name := range given {
			b.add("%s:%d: module %s has no parameter %s", a.main.path, d.line, d.name, name)
		}
		for _, m := range regexp.MustCompile(`\b`+d.name+`\.outputs\.(\w+)`).FindAllStringSubmatch(a.main.root.text(), -1) {
			if callee.find("output", m[1]).name == "" {
				b.add("%s: module %s has no output %s", a.main.path, d.name, m[1])
			}
		}
	}
	return found
}

// note records what an identifier declares or uses. Keys of objects, names of
// properties and of declarations are no uses.
func (f *bicep) note(n node, declared, used map[string]bool) {
	if n.Kind() != "identifier" {
		return
	}
	parent := n.Parent()
	switch kind := parent.Kind(); {
	case kinds[kind] != "":
		return
	case kind == "object_property" && parent.NamedChild(0).Id() == n.Id():
		return
	case kind == "resource_expression" && parent.ChildByFieldName("resource").Id() == n.Id():
		return
	case kind == "for_statement" && parent.NamedChild(0).Id() == n.Id(),
		kind == "lambda_expression" && parent.NamedChild(0).Id() == n.Id():
		declared[n.text()] = true
	case kind == "decorator" || kind == "call_expression" && parent.Parent().Kind() == "decorator":
		return
	default:
		used[n.text()] = true
	}
}

var (
	valueLine   = regexp.MustCompile(`^param (\w+) = (.+)$`)
	fromOutside = regexp.MustCompile(`^readEnvironmentVariable\('[A-Z_]+'(, '')?\)$`)
)

// sample objects to a file of parameters that does not fit the template.
func sample(a *azure) (found []string) {
	b := (*breaches)(&found)
	given := map[string]string{}
	for line := range strings.Lines(a.values) {
		line = strings.TrimSpace(line)
		m := valueLine.FindStringSubmatch(line)
		switch {
		case m != nil:
			given[m[1]] = m[2]
		case line != "" && !strings.HasPrefix(line, "//") && line != "using 'main.bicep'":
			b.add("%s: %q is neither a value nor a comment", paramFile, line)
		}
	}
	if !strings.Contains(a.values, "using 'main.bicep'\n") {
		b.add("%s is for no template", paramFile)
	}
	for _, d := range a.main.all("param") {
		value, ok := given[d.name]
		if delete(given, d.name); !ok && d.value.Node == nil {
			b.add("%s lacks %s", paramFile, d.name)
		}
		if _, secure := d.about["secure"]; secure && !fromOutside.MatchString(value) {
			b.add("%s: the secret %s is not from the environment", paramFile, d.name)
		}
	}
	for name := range given {
		b.add("%s", fmt.Sprintf("%s: the template has no parameter %s", paramFile, name))
	}
	return found
}
