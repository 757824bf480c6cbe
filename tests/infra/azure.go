package infra

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	mainBicep   = "infra/azure/main.bicep"
	dataBicep   = "infra/azure/data.bicep"
	appBicep    = "infra/azure/app.bicep"
	alertsBicep = "infra/azure/alerts.bicep"
	paramFile   = "infra/azure/main.bicepparam"
)

// azure are the templates of Azure.
type azure struct {
	main, data, app, alerts *bicep
	// values is the sample of parameters, which the grammar does not know.
	values string
	// known are the environment variables that the programs read.
	known []string
}

func (a *azure) files() []*bicep { return []*bicep{a.main, a.data, a.app, a.alerts} }

// loadAzure parses the templates.
func loadAzure(all texts, known []string) (a *azure, err error) {
	a = &azure{values: all[paramFile], known: known}
	for path, to := range map[string]**bicep{mainBicep: &a.main, dataBicep: &a.data, appBicep: &a.app, alertsBicep: &a.alerts} {
		if *to, err = parseBicep(path, all[path]); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// described objects to parameters and outputs that nobody can understand.
func described(a *azure) (found []string) {
	b := (*breaches)(&found)
	for _, f := range a.files() {
		for _, d := range slices.Concat(f.all("param"), f.all("output")) {
			if text := d.about["description"]; len(text) < 10 || !strings.HasSuffix(text, ".") {
				b.add("%s:%d: %s %s has no description that is a sentence", f.path, d.line, d.kind, d.name)
			}
		}
	}
	// The bounds are those of what people set; modules get it from main.
	for _, f := range []*bicep{a.main, a.data} {
		for _, d := range f.all("param") {
			_, least := d.about["minValue"]
			_, listed := d.about["allowed"]
			if d.typ == "int" && !least && !listed {
				b.add("%s:%d: number %s has no bounds", f.path, d.line, d.name)
			}
		}
	}
	return found
}

var secretName = regexp.MustCompile(`(?i)(key|keys|secret|password|token|headers|connectionString)$`)

// secretText is what a secret looks like, and what hands one out.
var secretText = regexp.MustCompile(`(?i)AccountKey=|SharedAccessSignature=|sig=|lattice_[A-Za-z0-9]{20}|sha256:|\blist(Keys|AccountSas|ServiceSas|Secrets)\b`)

// secrets objects to secrets in the templates, and to secrets that the
// deployment would remember.
func secrets(a *azure) (found []string) {
	b := (*breaches)(&found)
	for _, f := range a.files() {
		for _, d := range f.all("param") {
			_, secure := d.about["secure"]
			if secure && d.value.Node != nil {
				b.add("%s:%d: the secret %s has a default", f.path, d.line, d.name)
			}
			if secretName.MatchString(d.name) && !secure {
				b.add("%s:%d: %s is not marked as a secret", f.path, d.line, d.name)
			}
			if secure {
				for _, o := range f.all("output") {
					if strings.Contains(o.value.text(), d.name) {
						b.add("%s:%d: output %s tells the secret %s", f.path, o.line, o.name, d.name)
					}
				}
			}
		}
		if m := secretText.FindString(f.root.text()); m != "" {
			b.add("%s holds %q", f.path, m)
		}
	}
	if m := secretText.FindString(a.values); m != "" {
		b.add("%s holds %q", paramFile, m)
	}
	return found
}

var apiVersion = regexp.MustCompile(`^Microsoft\.[A-Za-z]+(/[A-Za-z]+)+@(\d{4}-\d{2}-\d{2})$`)

// versions objects to resources whose version is no released one.
func versions(a *azure) (found []string) {
	b := (*breaches)(&found)
	for _, f := range a.files() {
		for _, d := range f.all("resource") {
			if !strings.Contains(d.typ, ".") {
				continue // nested: the version is that of its parent
			}
			m := apiVersion.FindStringSubmatch(d.typ)
			if m == nil {
				b.add("%s:%d: %q is no type with a released version", f.path, d.line, d.typ)
			} else if at, err := time.Parse(time.DateOnly, m[2]); err != nil || at.Year() < 2017 {
				b.add("%s:%d: %q is no date of a version", f.path, d.line, m[2])
			}
		}
	}
	return found
}

// storage objects to accounts that open more than they must.
func storage(a *azure) (found []string) {
	b := (*breaches)(&found)
	accounts := slices.Concat(a.main.resources("Microsoft.Storage/storageAccounts"), a.data.resources("Microsoft.Storage/storageAccounts"))
	if len(accounts) != 2 {
		b.add("%d storage accounts", len(accounts))
	}
	for _, d := range accounts {
		for key, want := range map[string]string{
			"allowSharedKeyAccess": "false", "allowBlobPublicAccess": "false", "allowCrossTenantReplication": "false",
			"supportsHttpsTrafficOnly": "true", "minimumTlsVersion": "'TLS1_2'", "defaultToOAuthAuthentication": "true",
		} {
			b.want(d.name+"."+key, d.value.said("properties", key), want)
		}
	}
	for _, d := range slices.Concat(a.main.all("resource"), a.data.all("resource")) {
		if d.typ == "containers" {
			b.want(d.name+".publicAccess", d.value.said("properties", "publicAccess"), "'None'")
		}
	}
	data := a.data.find("resource", "data").value
	b.want("redundancy of the data", data.said("sku", "name"), "storageRedundancy")
	b.want("second encryption", data.said("properties", "encryption", "requireInfrastructureEncryption"), "infrastructureEncryption")
	b.want("table", a.data.find("resource", "table").value.said("name"), "tableName")
	b.want("container", a.data.find("resource", "container").value.said("name"), "containerName")
	for _, f := range []*bicep{a.main, a.data} {
		if redundancy := f.find("param", "storageRedundancy").about["allowed"]; strings.Contains(redundancy, "GRS") {
			b.add("%s: the data may be copied to another region, in pieces that need not fit: %s", f.path, redundancy)
		}
	}
	b.want("lock", a.data.find("resource", "dataLock").value.said("properties", "level"), "'CanNotDelete'")
	b.want("scope of the lock", a.data.find("resource", "dataLock").value.said("scope"), "data")
	return found
}

// site objects to an app that is open in other ways than HTTPS and the identity.
func site(a *azure) (found []string) {
	b := (*breaches)(&found)
	s := a.app.find("resource", "site").value
	for want, keys := range map[string][]string{
		"true":                   {"properties", "httpsOnly"},
		"'1.2'":                  {"properties", "siteConfig", "minTlsVersion"},
		"'UserAssigned'":         {"identity", "type"},
		"'UserAssignedIdentity'": {"properties", "functionAppConfig", "deployment", "storage", "authentication", "type"},
		"'custom'":               {"properties", "functionAppConfig", "runtime", "name"},
		"identity.id":            {"properties", "keyVaultReferenceIdentity"},
		"instanceMemoryMB":       {"properties", "functionAppConfig", "scaleAndConcurrency", "instanceMemoryMB"},
	} {
		b.want(strings.Join(keys, "."), s.said(keys...), want)
	}
	// Flex Consumption has neither, and refuses a site that names them.
	for _, refused := range []string{"ftpsState", "remoteDebuggingEnabled"} {
		b.want(refused, s.said("properties", "siteConfig", refused), "")
	}
	b.want("scmMinTlsVersion", s.said("properties", "siteConfig", "scmMinTlsVersion"), "'1.2'")
	passwords := 0
	for _, d := range a.app.all("resource") {
		if d.typ == "basicPublishingCredentialsPolicies" {
			passwords++
			b.want("passwords of "+d.value.said("name"), d.value.said("properties", "allow"), "false")
		}
	}
	if passwords != 2 {
		b.add("%d of 2 ways to publish by password are closed", passwords)
	}
	return found
}

// grants are the roles of the app and where it has them: the two roles of data
// on one table and one container; and what the Functions host asks for, away
// from the data.
var grants = map[string]struct{ id, scope string }{
	"storageTableDataContributor": {"0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3", "data::tables::table"},
	"storageBlobDataContributor":  {"ba92f5b4-2d11-453d-a403-e96b0029c9fe", "data::blobs::container"},
	"storageBlobDataOwner":        {"b7e6dc6d-f1e8-4753-8033-0f276bb0955b", "hostStorage"},
	"monitoringMetricsPublisher":  {"3913510d-42f4-4e42-8a64-420c390055eb", "insights"},
}

var roleOf = regexp.MustCompile(`^subscriptionResourceId\('Microsoft\.Authorization/roleDefinitions', roles\.(\w+)\)$`)

// privileges objects to roles beyond the grants.
func privileges(a *azure) (found []string) {
	b := (*breaches)(&found)
	left := maps.Clone(grants)
	for _, f := range a.files() {
		principal := "identity.properties.principalId"
		if f == a.data {
			principal = "principalId"
		}
		for _, d := range f.resources("Microsoft.Authorization/roleAssignments") {
			where := fmt.Sprintf("%s:%d: role assignment %s", f.path, d.line, d.name)
			m := roleOf.FindStringSubmatch(d.value.said("properties", "roleDefinitionId"))
			if m == nil {
				b.add("%s names no role of the list", where)
				continue
			}
			grant, ok := left[m[1]]
			if delete(left, m[1]); !ok {
				b.add("%s gives %s, which nobody needs, or needs twice", where, m[1])
				continue
			}
			b.want(where+": id of the role", f.find("var", "roles").value.at(m[1]).unquoted(), grant.id)
			b.want(where+": scope", d.value.said("scope"), grant.scope)
			b.want(where+": principal", d.value.said("properties", "principalId"), principal)
			b.want(where+": type of principal", d.value.said("properties", "principalType"), "'ServicePrincipal'")
		}
	}
	b.want("who may use the data", a.main.find("module", "data").value.said("params", "principalId"), "identity.properties.principalId")
	for role := range left {
		b.add("the app lacks the role %s", role)
	}
	for _, f := range []*bicep{a.main, a.data} {
		if !strings.Contains(f.root.text(), "targetScope = 'resourceGroup'") {
			b.add("%s is not for a resource group", f.path)
		}
	}
	return found
}
