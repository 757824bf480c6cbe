// Values for main.bicep. Nothing in here is secret: secrets come from the environment of whoever deploys.
using 'main.bicep'

param name = 'lattice'

// One line of `lattice keys new` or several, semicolons between them.
param authKeys = readEnvironmentVariable('LATTICE_AUTH_KEYS')

param otlpHeaders = readEnvironmentVariable('OTEL_EXPORTER_OTLP_HEADERS', '')

param actionGroupIds = []
