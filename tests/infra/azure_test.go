package infra

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

var azureChecks = []check[*azure]{
	{"parameters are described and bounded", described, []plant{
		{mainBicep, "@description('Region of everything.')\n", ""},
		{appBicep, "@description('Address of the service.')", "@description('')"},
		{mainBicep, "@minValue(40)\n@maxValue(1000)\n", ""},
	}},
	{"secrets stay out", secrets, []plant{
		{mainBicep, "@secure()\nparam authKeys string", "param authKeys string"},
		{mainBicep, "param authKeys string", "param authKeys string = 'x'"},
		{appBicep, "output name string = site.name", "output name string = authKeys"},
		{appBicep, "'managedidentity'", "'AccountKey=abc'"},
		{appBicep, "'managedidentity'", "listKeys(hostStorageName, '2023-05-01').keys[0].value"},
		{paramFile, "param name = 'lattice'", "param name = 'sha256:x'"},
	}},
	{"versions are released ones", versions, []plant{
		{mainBicep, "storageAccounts@2023-05-01", "storageAccounts@2023-05-01-preview"},
		{mainBicep, "storageAccounts@2023-05-01", "storageAccounts@2023-13-01"},
		{alertsBicep, "metricAlerts@2018-03-01", "metricAlerts"},
	}},
	{"storage is closed", storage, []plant{
		{dataBicep, "allowSharedKeyAccess: false", "allowSharedKeyAccess: true"},
		{mainBicep, "    allowBlobPublicAccess: false\n", ""},
		{mainBicep, "minimumTlsVersion: 'TLS1_2'", "minimumTlsVersion: 'TLS1_0'"},
		{dataBicep, "publicAccess: 'None'", "publicAccess: 'Blob'"},
		{mainBicep, "supportsHttpsTrafficOnly: true", "supportsHttpsTrafficOnly: false"},
		{mainBicep, "'Standard_LRS'\n  'Standard_ZRS'", "'Standard_GRS'\n  'Standard_ZRS'"},
		{dataBicep, "scope: data\n", "scope: resourceGroup()\n"},
		{dataBicep, "minimumTlsVersion: 'TLS1_2'", "minimumTlsVersion: 'TLS1_0'"},
	}},
	{"the app is closed", site, []plant{
		{appBicep, "httpsOnly: true", "httpsOnly: false"},
		{appBicep, "      minTlsVersion: '1.2'\n", ""},
		{appBicep, "      minTlsVersion: '1.2'\n", "      ftpsState: 'Disabled'\n      minTlsVersion: '1.2'\n"},
		{appBicep, "allow: false", "allow: true"},
		{appBicep, "type: 'UserAssignedIdentity'", "type: 'StorageAccountConnectionString'"},
		{appBicep, "scmMinTlsVersion: '1.2'", "scmMinTlsVersion: '1.0'"},
	}},
	{"roles are the least ones", privileges, []plant{
		{dataBicep, "scope: data::tables::table", "scope: data"},
		{dataBicep, "  scope: data::blobs::container\n", ""},
		{dataBicep, "ba92f5b4-2d11-453d-a403-e96b0029c9fe", "b24988ac-6180-42a0-ab88-20f7382dd24c"},
		{dataBicep, "roleDefinitions', roles.storageTableDataContributor)", "roleDefinitions', roles.storageBlobDataOwner)"},
		{dataBicep, "roleDefinitions', roles.storageTableDataContributor)", "roleDefinitions', 'b24988ac-6180-42a0-ab88-20f7382dd24c')"},
		{mainBicep, "principalId: identity.properties.principalId", "principalId: name"},
		{dataBicep, "principalId: principalId", "principalId: name"},
		{mainBicep, "roles.storageBlobDataOwner)\n  }\n}", "roles.storageBlobDataOwner)\n  }\n}\n\nresource more 'Microsoft.Authorization/roleAssignments@2022-04-01' = {\n  name: name\n}"},
		{mainBicep, "targetScope = 'resourceGroup'", "targetScope = 'subscription'"},
	}},
	{"settings are read by somebody", appSettings, []plant{
		{appBicep, "LATTICE_TABLE_URL:", "LATTICE_TABLES_URL:"},
		{appBicep, "LATTICE_CACHE_BYTES:", "LATTICE_CACHE_BITES:"},
		{appBicep, "AzureWebJobsStorage__accountName:", "AzureWebJobsStorage:"},
		{appBicep, "  AZURE_CLIENT_ID: identity.properties.clientId\n", ""},
		{appBicep, "  LATTICE_CONTAINER_NAME: containerName\n", ""},
		{appBicep, "keySettings, tokenSettings", "tokenSettings"},
		{appBicep, "telemetryHeaderSettings, settings)", "telemetryHeaderSettings)"},
	}},
	{"settings fit the memory", memory, []plant{
		{appBicep, "MiB'", "MB!'"},
		{appBicep, "LATTICE_MAX_BULK_LOADS: string(instanceMemoryMB / 512)", "LATTICE_MAX_BULK_LOADS: '40'"},
		{appBicep, "'${instanceMemoryMB / 4}MiB'", "'2048MiB'"},
	}},
	{"alerts look for what exists", alerts, []plant{
		{alertsBicep, "  'collect'\n", ""},
		{alertsBicep, `has "timer failed"`, `has "timer broke"`},
		{alertsBicep, "window: 'PT15M'\n    query: 'datatable", "window: 'PT2M'\n    query: 'datatable"},
		{alertsBicep, "'blob'\n", "\n"},
		{alertsBicep, "actionGroups: actionGroupIds", "actionGroups: []"},
	}},
	{"names refer to something", references, []plant{
		{mainBicep, "identityName: identity.name", "identityName: identitty.name"},
		{mainBicep, "    tableUrl: data", "    tablesUrl: data"},
		{mainBicep, "    logLevel: logLevel\n", ""},
		{mainBicep, "app.outputs.url", "app.outputs.address"},
		{mainBicep, "'alerts.bicep'", "'alarms.bicep'"},
		{mainBicep, "dailyQuotaGb: logDailyCapGB", "dailyQuotaGb: 1"},
		{appBicep, "value: packageUrl", "value: url"},
	}},
	{"the sample fits", sample, []plant{
		{paramFile, "param name = 'lattice'\n", ""},
		{paramFile, "param actionGroupIds", "param actionGroups"},
		{paramFile, "readEnvironmentVariable('LATTICE_AUTH_KEYS')", "'a key'"},
		{paramFile, "using 'main.bicep'", "using 'app.bicep'"},
	}},
}

var azurePaths = []string{mainBicep, dataBicep, appBicep, alertsBicep, paramFile}

func TestAzureTemplates(t *testing.T) {
	known, err := variables(running.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	load := func(all texts) (*azure, error) { return loadAzure(all, known) }
	runChecks(t, read(t, azurePaths...), load, azureChecks)
}

func TestBrokenTemplateIsFound(t *testing.T) {
	all := read(t, azurePaths...)
	for _, p := range []plant{
		{mainBicep, "param location string = resourceGroup().location", "param location string = resourceGroup(.location"},
		{appBicep, "  properties: {\n    serverFarmId", "  properties: [\n    serverFarmId"},
	} {
		if _, err := loadAzure(all.with(t, p), nil); err == nil {
			t.Errorf("%s parses with %q", p.file, p.new)
		}
	}
}

func TestTimerFailuresAreLoggedAsTheAlertExpects(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(running.Root(t), "functions/azurefunc/host.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`\.Error(Context)?\((ctx, )?"` + failureText + `"`).Match(text) {
		t.Errorf("the custom handler does not log %q", failureText)
	}
}
