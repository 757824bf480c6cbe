// Alerts of the deployment: what its operator should be woken for. See main.bicep.

@description('Prefix of the names.')
param name string

@description('Region of the rules.')
param location string

@description('Tags of the rules.')
param tags object

@description('Name of the function app.')
param appName string

@description('Resource id of the storage account with the data.')
param dataAccountId string

@description('Resource id of the workspace with the logs.')
param workspaceId string

@description('Resource ids of the action groups to notify.')
param actionGroupIds array

// The functions that run on a schedule.
var timers = [
  'monitor'
  'migrations'
  'transactions'
  'checkpoint'
  'collect'
]

var timerList = join(map(timers, timer => '"${timer}"'), ', ')

// The answers by which the storage says that it is asked for too much.
var throttled = [
  'ServerBusyError'
  'ServerTimeoutError'
  'ClientThrottlingError'
  'ClientAccountRequestThrottlingError'
  'ClientAccountBandwidthThrottlingError'
]

resource storageThrottling 'Microsoft.Insights/metricAlerts@2018-03-01' = [for service in [
  'table'
  'blob'
]: {
  name: '${name}-${service}-throttling'
  location: 'global'
  tags: tags
  properties: {
    description: 'The ${service} service of the data account refuses requests because there are too many, or too many bytes.'
    severity: 2
    enabled: true
    scopes: [
      '${dataAccountId}/${service}Services/default'
    ]
    evaluationFrequency: 'PT1M'
    windowSize: 'PT5M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'throttled'
          metricNamespace: 'Microsoft.Storage/storageAccounts/${service}Services'
          metricName: 'Transactions'
          dimensions: [
            {
              name: 'ResponseType'
              operator: 'Include'
              values: throttled
            }
          ]
          operator: 'GreaterThan'
          threshold: 50
          timeAggregation: 'Total'
        }
      ]
    }
    actions: [for id in actionGroupIds: {
      actionGroupId: id
    }]
  }
}]

// Rules that look at the logs: any row that a query returns is a reason to notify.
var logRules = [
  {
    name: 'server-errors'
    severity: 2
    description: 'More than one request in a hundred was answered with a 5xx status, and more than ten were.'
    window: 'PT10M'
    query: 'AppRequests | where AppRoleName =~ "${appName}" | where Name !in (${timerList}) | summarize Bad = sumif(ItemCount, toint(ResultCode) >= 500), All = sum(ItemCount) | where Bad > 10 and Bad * 100 > All'
  }
  {
    name: 'timer-failures'
    severity: 2
    description: 'Scheduled work failed more than three times in a quarter of an hour. The host counts such a run as a success, so the log of the service is asked.'
    window: 'PT15M'
    query: 'AppTraces | where AppRoleName =~ "${appName}" | where Message has "timer failed" | summarize Failures = sum(ItemCount) | where Failures > 3'
  }
  {
    name: 'timers-missing'
    severity: 1
    description: 'Scheduled work did not run for a quarter of an hour: shards are not checkpointed, splits not carried on, or blobs not collected. Or the daily cap of the logs is reached, see log-cap.'
    window: 'PT15M'
    query: 'datatable (Timer: string) [${timerList}] | join kind=leftanti (AppRequests | where AppRoleName =~ "${appName}" | distinct Name) on $left.Timer == $right.Name'
  }
  {
    name: 'log-cap'
    severity: 2
    description: 'The daily cap of the logs is reached: until the next day nothing is logged, timers seem to be missing, and other alerts see nothing. Raise logDailyCapGB, or lower logLevel.'
    window: 'PT15M'
    query: '_LogOperation | where Category =~ "Ingestion" | where Detail contains "OverQuota"'
  }
]

resource logAlerts 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = [for rule in logRules: {
  name: '${name}-${rule.name}'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: '${name}: ${rule.name}'
    description: rule.description
    severity: rule.severity
    enabled: true
    autoMitigate: true
    // The tables appear with the first rows in them, after this deployment.
    skipQueryValidation: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: rule.window
    criteria: {
      allOf: [
        {
          query: rule.query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: actionGroupIds
    }
  }
}]
