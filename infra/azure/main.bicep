// Lattice on Azure: a storage account with the data, a function app that serves it with an identity of its own, the
// storage that the Functions host wants for itself, logs, and alerts. docs/deploy.md says how to deploy it.
//
// No key of a storage account is used anywhere, and shared keys are off. The identity of the app may use one table and
// one container of the data account, which are made there, and nothing else in it.

targetScope = 'resourceGroup'

@description('Prefix of all names: 3 to 10 lower-case letters and digits, a letter first. Storage accounts and the app get a suffix that is unique to the resource group.')
@minLength(3)
@maxLength(10)
param name string

@description('Region of everything.')
param location string = resourceGroup().location

@description('API keys, hashed, as `lattice keys new` prints them, lines or semicolons between them; or a Key Vault reference to such text. Empty if only tokens of an issuer are accepted.')
@secure()
param authKeys string

@description('Accept JSON Web Tokens of this issuer. Empty is none; else jwtAudience and jwksUrl must be given as well.')
param jwtIssuer string = ''

@description('Audience of these tokens.')
param jwtAudience string = ''

@description('Where the issuer publishes its keys, an https URL.')
param jwksUrl string = ''

@description('Copies of the data: in one datacenter (LRS), or in three zones of the region (ZRS). Copies in another region are not offered: they are made later, and of rows and blobs apart, so after a fail-over the two need not fit.')
@allowed([
  'Standard_LRS'
  'Standard_ZRS'
])
param storageRedundancy string = 'Standard_ZRS'

@description('Encrypt the data a second time, with other keys, in the infrastructure of the storage. It cannot be changed later.')
param infrastructureEncryption bool = false

@description('Days for which deleted blobs can be restored; 0 is off. Checkpoints write new blobs and delete old ones all the time, so each day keeps, and costs, about as much as checkpoints write in a day.')
@minValue(0)
@maxValue(365)
param blobSoftDeleteDays int = 1

@description('Days for which the deleted container can be restored. It costs nothing until somebody deletes it.')
@minValue(1)
@maxValue(365)
param containerSoftDeleteDays int = 14

@description('Lock the data account against deletion. The lock has to be removed before the resource group can be deleted.')
param lockData bool = true

@description('Table with the rows: 3 to 63 letters and digits.')
@minLength(3)
@maxLength(63)
param tableName string = 'lattice'

@description('Container with the blobs: 3 to 63 lower-case letters, digits and dashes.')
@minLength(3)
@maxLength(63)
param containerName string = 'lattice'

@description('Memory of an instance in MB. Caches get a quarter of it.')
@allowed([
  2048
  4096
])
param instanceMemoryMB int = 2048

@description('Instances at most.')
@minValue(40)
@maxValue(1000)
param maximumInstanceCount int = 40

@description('Requests that one instance serves at once, before another is started.')
@minValue(1)
@maxValue(1000)
param requestsPerInstance int = 100

@description('Instances that stay ready for requests, and are paid for at all times. With 0, the first request after a pause waits for a start of the host.')
@minValue(0)
@maxValue(20)
param alwaysReadyInstances int = 0

@description('Least level that is logged.')
@allowed([
  'debug'
  'info'
  'warn'
  'error'
])
param logLevel string = 'info'

@description('Days for which logs are kept.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

@description('Gigabytes of logs a day, after which no more are taken in until the next day; -1 is no limit.')
@minValue(-1)
param logDailyCapGB int = 1

@description('Address to which metrics and traces are sent by OTLP over HTTP. Empty is none.')
param otlpEndpoint string = ''

@description('Headers for it, such as `authorization=Bearer …`. Empty is none.')
@secure()
param otlpHeaders string

@description('Resource ids of the action groups that alerts notify. With none, alerts only show in the portal.')
param actionGroupIds array = []

@description('Further settings of the service, by the names of their environment variables, such as { LATTICE_TICK_BUDGET: \'40s\' }.')
param settings object = {}

@description('Tags of all resources.')
param tags object = {}

var suffix = uniqueString(resourceGroup().id, name)

// The ids of roles are the same in every tenant.
var roles = {
  storageBlobDataOwner: 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
  monitoringMetricsPublisher: '3913510d-42f4-4e42-8a64-420c390055eb'
}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-app-${suffix}'
  location: location
  tags: tags
}

// ---- The data ----

module data 'data.bicep' = {
  name: '${name}-data'
  params: {
    name: name
    location: location
    tags: tags
    principalId: identity.properties.principalId
    storageRedundancy: storageRedundancy
    infrastructureEncryption: infrastructureEncryption
    blobSoftDeleteDays: blobSoftDeleteDays
    containerSoftDeleteDays: containerSoftDeleteDays
    lockData: lockData
    tableName: tableName
    containerName: containerName
  }
}

// ---- What the Functions host wants for itself: the package, locks of timers, keys ----

resource hostStorage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: '${name}h${suffix}'
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: 'Standard_LRS'
  }
  properties: {
    accessTier: 'Hot'
    allowSharedKeyAccess: false
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: 'Enabled'
  }

  resource blobs 'blobServices' = {
    name: 'default'

    resource package 'containers' = {
      name: 'package'
      properties: {
        publicAccess: 'None'
      }
    }
  }
}

// The host asks for this role, not for less. That is why it has an account of its own.
resource hostStorageForApp 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(hostStorage.id, identity.id, roles.storageBlobDataOwner)
  scope: hostStorage
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.storageBlobDataOwner)
  }
}

// ---- Logs ----

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs-${suffix}'
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: logRetentionDays
    workspaceCapping: {
      dailyQuotaGb: logDailyCapGB
    }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: '${name}-insights-${suffix}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    DisableLocalAuth: true
    WorkspaceResourceId: workspace.id
  }
}

resource insightsForApp 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(insights.id, identity.id, roles.monitoringMetricsPublisher)
  scope: insights
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.monitoringMetricsPublisher)
  }
}

// ---- The app ----

module app 'app.bicep' = {
  name: '${name}-app'
  params: {
    name: '${name}-${suffix}'
    location: location
    tags: tags
    identityName: identity.name
    packageUrl: '${hostStorage.properties.primaryEndpoints.blob}${hostStorage::blobs::package.name}'
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    requestsPerInstance: requestsPerInstance
    alwaysReadyInstances: alwaysReadyInstances
    hostStorageName: hostStorage.name
    insightsName: insights.name
    tableUrl: data.outputs.tableUrl
    blobUrl: data.outputs.blobUrl
    tableName: tableName
    containerName: containerName
    logLevel: logLevel
    authKeys: authKeys
    jwtIssuer: jwtIssuer
    jwtAudience: jwtAudience
    jwksUrl: jwksUrl
    otlpEndpoint: otlpEndpoint
    otlpHeaders: otlpHeaders
    settings: settings
  }
  // The app cannot start before it may read its data and its package.
  dependsOn: [
    data
    hostStorageForApp
    insightsForApp
  ]
}

module alerts 'alerts.bicep' = {
  name: '${name}-alerts'
  params: {
    name: name
    location: location
    tags: tags
    appName: app.outputs.name
    dataAccountId: data.outputs.accountId
    workspaceId: workspace.id
    actionGroupIds: actionGroupIds
  }
}

@description('Name of the function app, for `az functionapp`.')
output appName string = app.outputs.name

@description('Address of the service.')
output url string = app.outputs.url

@description('Storage account with the data.')
output dataAccountName string = data.outputs.accountName

@description('Client id of the identity of the app.')
output identityClientId string = identity.properties.clientId
