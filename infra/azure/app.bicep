// The function app: a plan that scales to zero, and the app with its settings. See main.bicep.

@description('Name of the app; it becomes its host name.')
param name string

@description('Region of the app.')
param location string

@description('Tags of the resources.')
param tags object

@description('User-assigned identity of the app, in this resource group.')
param identityName string

@description('Address of the container from which the host loads the package.')
param packageUrl string

@description('Memory of an instance in MB.')
param instanceMemoryMB int

@description('Instances at most.')
param maximumInstanceCount int

@description('Requests that one instance serves at once.')
param requestsPerInstance int

@description('Instances that stay ready for requests.')
param alwaysReadyInstances int

@description('Storage account of the Functions host.')
param hostStorageName string

@description('Application Insights component, in this resource group.')
param insightsName string

@description('Address of the table service with the data.')
param tableUrl string

@description('Address of the blob service with the data.')
param blobUrl string

@description('Table with the rows.')
param tableName string

@description('Container with the blobs.')
param containerName string

@description('Least level that is logged.')
param logLevel string

@description('API keys, hashed, or a Key Vault reference to them.')
@secure()
param authKeys string

@description('Issuer of tokens, empty if none is accepted.')
param jwtIssuer string

@description('Audience of the tokens.')
param jwtAudience string

@description('Where the keys of the issuer are published.')
param jwksUrl string

@description('Where metrics and traces are sent, empty if nowhere.')
param otlpEndpoint string

@description('Headers for it.')
@secure()
param otlpHeaders string

@description('Further settings of the service.')
param settings object

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' existing = {
  name: identityName
}

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

// What the Functions host reads. Accounts are named, not keys: the host uses the identity.
var hostSettings = {
  AzureWebJobsDisableHomepage: 'true'
  AzureWebJobsStorage__accountName: hostStorageName
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identity.properties.clientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identity.properties.clientId};Authorization=AAD'
}

// What the service reads.
var serviceSettings = {
  AZURE_CLIENT_ID: identity.properties.clientId
  AZURE_TOKEN_CREDENTIALS: 'ManagedIdentityCredential'
  LATTICE_STORE: 'azure'
  LATTICE_TABLE_URL: tableUrl
  LATTICE_BLOB_URL: blobUrl
  LATTICE_TABLE_NAME: tableName
  LATTICE_CONTAINER_NAME: containerName
  LATTICE_LOG_LEVEL: logLevel
  LATTICE_CACHE_BYTES: '${instanceMemoryMB / 4}MiB'
  LATTICE_MAX_BULK_LOADS: string(instanceMemoryMB / 512)
}

var keySettings = empty(authKeys) ? {} : {
  LATTICE_AUTH_KEYS: authKeys
}

var tokenSettings = empty(jwtIssuer) ? {} : {
  LATTICE_AUTH_JWT_ISSUER: jwtIssuer
  LATTICE_AUTH_JWT_AUDIENCE: jwtAudience
  LATTICE_AUTH_JWKS_URL: jwksUrl
}

var telemetrySettings = empty(otlpEndpoint) ? {} : {
  OTEL_EXPORTER_OTLP_ENDPOINT: otlpEndpoint
}

var telemetryHeaderSettings = empty(otlpHeaders) ? {} : {
  OTEL_EXPORTER_OTLP_HEADERS: otlpHeaders
}

resource plan 'Microsoft.Web/serverfarms@2024-04-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
  }
}

resource site 'Microsoft.Web/sites@2024-04-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    clientAffinityEnabled: false
    keyVaultReferenceIdentity: identity.id
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: packageUrl
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identity.id
          }
        }
      }
      runtime: {
        name: 'custom'
        version: '1.0'
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: alwaysReadyInstances == 0 ? [] : [
          {
            name: 'http'
            instanceCount: alwaysReadyInstances
          }
        ]
        triggers: {
          http: {
            perInstanceConcurrency: requestsPerInstance
          }
        }
      }
    }
  }

  resource appSettings 'config' = {
    name: 'appsettings'
    properties: union(hostSettings, serviceSettings, keySettings, tokenSettings, telemetrySettings, telemetryHeaderSettings, settings)
  }

  // Nobody publishes with a user name and a password.
  resource ftpCredentials 'basicPublishingCredentialsPolicies' = {
    name: 'ftp'
    properties: {
      allow: false
    }
  }

  resource scmCredentials 'basicPublishingCredentialsPolicies' = {
    name: 'scm'
    properties: {
      allow: false
    }
  }
}

@description('Name of the app.')
output name string = site.name

@description('Address of the service.')
output url string = 'https://${site.properties.defaultHostName}'
