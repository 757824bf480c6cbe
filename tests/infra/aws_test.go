package infra

import (
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

var awsChecks = []check[*aws]{
	{"parameters are described and bounded", samParameters, []plant{
		{samPath, "    Description: Table with the rows.\n", ""},
		{samPath, "    MinValue: 1024\n", ""},
		{samPath, "  TableName:\n    Type", "  TablePassword:\n    Type"},
		{samPath, "LATTICE_STORE: azure", "LATTICE_STORE: 'AccountKey=abc'"},
	}},
	{"names refer to something", samReferences, []plant{
		{samPath, "CodeUri:\n      Bucket: !Ref CodeBucket", "CodeUri:\n      Bucket: !Ref Bucket"},
		{samPath, "!GetAtt FunctionRole.Arn", "!GetAtt Role.Arn"},
		{samPath, "${SecretVersion}", "${Version}"},
		{samPath, "!If [Tokens, !Ref JwtIssuer", "!If [Tokenz, !Ref JwtIssuer"},
		{samPath, "LATTICE_CACHE_BYTES: !Ref CacheBytes", "LATTICE_CACHE_BYTES: 256MiB"},
		{samPath, "DependsOn: ServeLogs", "DependsOn: Logs"},
		{samPath, "ServeFunctionUrl.FunctionUrl", "ServUrl.FunctionUrl"},
	}},
	{"settings are read by somebody", samSettings, []plant{
		{samPath, "LATTICE_ACCOUNT:", "LATTICE_ACOUNT:"},
		{samPath, "        LATTICE_CONTAINER_NAME: !Ref ContainerName\n", ""},
		{samPath, "LATTICE_LAMBDA_RESPONSE_STREAM:", "LATTICE_RESPONSE_STREAM:"},
		{samPath, "SecretString:AZURE_CLIENT_SECRET::", "SecretString:AZURE_SECRET::"},
		{samPath, "- !Sub '{{resolve:secretsmanager:${SecretName}:SecretString:AZURE_CLIENT_SECRET::${SecretVersion}}}'", "- !Ref AzureClientId"},
		{samPath, "LATTICE_INSECURE_NO_AUTH: !If [ByIam, 'true', !Ref AWS::NoValue]", "LATTICE_INSECURE_NO_AUTH: 'true'"},
		{samPath, "ByIam: !Equals [!Ref AuthType, AWS_IAM]", "ByIam: !Equals [!Ref AuthType, NONE]"},
		{samPath, "AuthType: !Ref AuthType", "AuthType: NONE"},
		{samPath, "Default: 256MiB", "Default: 1024MiB"},
	}},
	{"rights are the least ones", samPrivileges, []plant{
		{samPath, "- logs:PutLogEvents", "- logs:*"},
		{samPath, "- !GetAtt ServeLogs.Arn", "- '*'"},
		{samPath, "Service: lambda.amazonaws.com", "AWS: '*'"},
		{samPath, "      Policies:\n        - PolicyName", "      ManagedPolicyArns: [arn:aws:iam::aws:policy/AdministratorAccess]\n      Policies:\n        - PolicyName"},
		{samPath, "SourceArn: !GetAtt EveryMinute.Arn", "SourceAccount: !Ref AWS::AccountId"},
		{samPath, "Principal: events.amazonaws.com", "Principal: '*'"},
		{samPath, "      FunctionUrlAuthType: NONE\n", ""},
		{samPath, "      InvokedViaFunctionUrl: true\n", ""},
		{samPath, "    Condition: Public\n    Properties:\n      Action: lambda:InvokeFunctionUrl", "    Properties:\n      Action: lambda:InvokeFunctionUrl"},
		{samPath, "  Public: !Equals [!Ref AuthType, NONE]", "  Public: !Equals [!Ref AuthType, AWS_IAM]"},
		{samPath, "      Role: !GetAtt FunctionRole.Arn\n", ""},
		{samPath, "      Role: !GetAtt FunctionRole.Arn\n", "      Role: !GetAtt FunctionRole.Arn\n      Policies: AmazonS3FullAccess\n"},
	}},
	{"the schedule is that of the code", samSchedule, []plant{
		{samPath, "rate(1 minute)", "rate(5 minutes)"},
		{samPath, "State: ENABLED", "State: DISABLED"},
		{samPath, "Arn: !GetAtt ScheduleFunction.Arn", "Arn: !GetAtt ServeFunction.Arn"},
		{samPath, "        - Id: schedule\n", "        - Id: schedule\n          Input: '{\"timer\":\"collect\"}'\n"},
		{samPath, "MaximumRetryAttempts: 0", "MaximumRetryAttempts: 2"},
	}},
	{"time-outs leave the last word to the service", samTimes, []plant{
		{samPath, "Default: 120\n    MinValue: 110", "Default: 120\n    MinValue: 60"},
		{samPath, "Default: 60\n    MinValue: 35", "Default: 30\n    MinValue: 35"},
		{samPath, "Timeout: !Ref ServeTimeout", "Timeout: 3"},
	}},
	{"the function is what the package script makes", samPackage, []plant{
		{samPath, "Handler: bootstrap", "Handler: main"},
		{samPath, "Runtime: provided.al2023", "Runtime: provided.al2"},
		{samPath, "AllowedValues: [arm64, x86_64]", "AllowedValues: [arm64, amd64]"},
		{packageScript, "/bootstrap", "/main"},
	}},
	{"alarms look at what exists and tell somebody", samAlarms, []plant{
		{samPath, "MetricName: Throttles", "MetricName: Throttle"},
		{samPath, "TreatMissingData: breaching", "TreatMissingData: missing"},
		{samPath, "      AlarmActions: !If [Notified, [!Ref AlarmTopicArn], !Ref AWS::NoValue]\n", ""},
		{samPath, "'/aws/lambda/${AWS::StackName}-serve'", "'/aws/lambda/${AWS::StackName}'"},
		{samPath, "      RetentionInDays: !Ref LogRetentionDays\n", ""},
	}},
}

func TestAWSTemplate(t *testing.T) {
	known, err := variables(running.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	load := func(all texts) (*aws, error) { return loadAWS(all, known) }
	runChecks(t, read(t, samPath, packageScript), load, awsChecks)
}

func TestPropertiesThatDoNotExistAreFound(t *testing.T) {
	all := read(t, samPath)
	for _, p := range []plant{
		{samPath, "ScheduleExpression:", "ScheduledExpression:"},
		{samPath, "InvokeMode: !Ref", "InvocationMode: !Ref"},
		{samPath, "      RetentionInDays:", "      RetentionDays:"},
		{samPath, "ComparisonOperator:", "Comparison:"},
	} {
		if _, err := loadAWS(all.with(t, p), nil); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("with %q: %v", p.new, err)
		}
	}
}
