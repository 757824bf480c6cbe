// The storage account with the data: one table, one container, and one identity that may use them, and nothing else in
// the account. main.bicep uses it; hosts outside of Azure need nothing more than this.

targetScope = 'resourceGroup'

@description('Prefix of the name: 3 to 10 lower-case letters and digits, a letter first. The account gets a suffix that is unique to the resource group.')
@minLength(3)
@maxLength(10)
param name string

@description('Region of the account.')
param location string = resourceGroup().location

@description('Object id of the identity that serves the data: a managed identity, or a service principal.')
param principalId string

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

@description('Tags of the account.')
param tags object = {}

// The ids of roles are the same in every tenant.
var roles = {
  storageTableDataContributor: '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
  storageBlobDataContributor: 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
}

resource data 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: '${name}d${uniqueString(resourceGroup().id, name)}'
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: storageRedundancy
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
    encryption: {
      keySource: 'Microsoft.Storage'
      requireInfrastructureEncryption: infrastructureEncryption
      services: {
        blob: {
          enabled: true
          keyType: 'Account'
        }
        table: {
          enabled: true
          keyType: 'Account'
        }
      }
    }
  }

  resource tables 'tableServices' = {
    name: 'default'

    resource table 'tables' = {
      name: tableName
    }
  }

  resource blobs 'blobServices' = {
    name: 'default'
    properties: {
      deleteRetentionPolicy: blobSoftDeleteDays == 0 ? {
        enabled: false
      } : {
        enabled: true
        days: blobSoftDeleteDays
      }
      containerDeleteRetentionPolicy: {
        enabled: true
        days: containerSoftDeleteDays
      }
      // Names of blobs are never used twice, so versions would protect nothing and cost much.
      isVersioningEnabled: false
    }

    resource container 'containers' = {
      name: containerName
      properties: {
        publicAccess: 'None'
      }
    }
  }
}

resource dataLock 'Microsoft.Authorization/locks@2020-05-01' = if (lockData) {
  name: 'keep-the-data'
  scope: data
  properties: {
    level: 'CanNotDelete'
    notes: 'All state of Lattice is in this account.'
  }
}

resource rowsForApp 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(data::tables::table.id, principalId, roles.storageTableDataContributor)
  scope: data::tables::table
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.storageTableDataContributor)
  }
}

resource blobsForApp 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(data::blobs::container.id, principalId, roles.storageBlobDataContributor)
  scope: data::blobs::container
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.storageBlobDataContributor)
  }
}

@description('Name of the account.')
output accountName string = data.name

@description('Resource id of the account.')
output accountId string = data.id

@description('Address of its table service.')
output tableUrl string = data.properties.primaryEndpoints.table

@description('Address of its blob service.')
output blobUrl string = data.properties.primaryEndpoints.blob
