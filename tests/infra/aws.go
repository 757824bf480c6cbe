package infra

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/schedule"
)

// samParameters objects to parameters that nobody can understand or that are
// secrets, which belong into the secret.
func samParameters(a *aws) (found []string) {
	b := (*breaches)(&found)
	names, all := a.section("Parameters")
	for _, name := range names {
		p := all[name]
		if text := said(p, "Description"); len(text) < 10 || !strings.HasSuffix(text, ".") {
			b.add("parameter %s has no description that is a sentence", name)
		}
		bounded := at(p, "AllowedValues") != nil || at(p, "MinValue") != nil && at(p, "MaxValue") != nil
		if said(p, "Type") == "Number" && !bounded {
			b.add("number %s has no bounds", name)
		}
		if secretName.MatchString(name) && name != "CodeKey" {
			b.add("parameter %s is a secret", name)
		}
	}
	if m := secretText.FindString(a.docs[samPath]); m != "" {
		b.add("the template holds %q", m)
	}
	return found
}

var substituted = regexp.MustCompile(`\$\{([\w:.]+)\}`)

// samReferences objects to names that nothing declares, and to parameters and
// conditions that nobody uses.
func samReferences(a *aws) (found []string) {
	b := (*breaches)(&found)
	parameters, _ := a.section("Parameters")
	resources, _ := a.section("Resources")
	conditions, _ := a.section("Conditions")
	used := map[string]bool{}
	use := func(name string) {
		name, _, _ = strings.Cut(name, ".")
		used[name] = true
		if strings.HasSuffix(name, "FunctionUrl") {
			// SAM makes the URL of a function a resource of this name.
			name = strings.TrimSuffix(name, "Url")
		}
		if !strings.HasPrefix(name, "AWS::") && !slices.Contains(parameters, name) && !slices.Contains(resources, name) {
			b.add("nothing is called %s", name)
		}
	}
	calls(a.tree, func(name string, argument any) {
		text, _ := argument.(string)
		switch list, _ := argument.([]any); {
		case name == "Ref", name == "GetAtt":
			use(text)
		case name == "Sub":
			for _, m := range substituted.FindAllStringSubmatch(text, -1) {
				use(m[1])
			}
		case name == "Condition" && slices.Contains(conditions, text):
			used[text] = true
		case name == "If" && len(list) == 3:
			condition := said(list[0])
			if used[condition] = true; !slices.Contains(conditions, condition) {
				b.add("there is no condition %s", condition)
			}
		case name == "If":
			b.add("an If of %d parts", len(list))
		}
	})
	for _, name := range resources {
		if on := said(at(a.tree, "Resources", name), "Condition"); on != "" {
			if used[on] = true; !slices.Contains(conditions, on) {
				b.add("there is no condition %s", on)
			}
		}
	}
	for _, name := range append(parameters, conditions...) {
		if !used[name] {
			b.add("nobody uses %s", name)
		}
	}
	for _, name := range resources {
		if on := said(at(a.tree, "Resources", name), "DependsOn"); on != "" && !slices.Contains(resources, on) {
			b.add("%s depends on %s, which does not exist", name, on)
		}
	}
	return found
}

// samSettings objects to variables that nobody reads, to such as are missing, and
// to secrets that are not from the secret.
func samSettings(a *aws) (found []string) {
	b := (*breaches)(&found)
	set, _ := at(a.tree, "Globals", "Function", "Environment", "Variables").(map[string]any)
	for name, value := range set {
		if !slices.Contains(a.known, name) {
			b.add("nobody reads the variable %s", name)
		}
		secret := slices.Contains([]string{"AZURE_CLIENT_SECRET", "AZURE_STORAGE_CONNECTION_STRING", "LATTICE_AUTH_KEYS", "LATTICE_TABLE_URL", "LATTICE_BLOB_URL"}, name)
		reference := "{{resolve:secretsmanager:${SecretName}:SecretString:" + name + "::${SecretVersion}}}"
		if strings.Contains(said(value), reference) != secret {
			b.add("the variable %s is %s", name, said(value))
		}
	}
	for _, name := range append(configured(), "AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "LATTICE_LAMBDA_RESPONSE_STREAM") {
		if _, ok := set[name]; ok == (notInTemplates[name] != "") {
			b.add("the variable %s: set %t", name, ok)
		}
	}
	streamed := said(set, "LATTICE_LAMBDA_RESPONSE_STREAM")
	b.want("streaming", streamed, "If [Streamed, true, false]")
	b.want("condition of streaming", said(a.tree, "Conditions", "Streamed"), "Equals [Ref InvokeMode, RESPONSE_STREAM]")
	// Nobody can call without a credential: either the service asks for one, or
	// IAM does.
	b.want("going without credentials", said(set, "LATTICE_INSECURE_NO_AUTH"), "If [ByIam, true, Ref AWS::NoValue]")
	b.want("condition of going without", said(a.tree, "Conditions", "ByIam"), "Equals [Ref AuthType, AWS_IAM]")
	b.want("who may call", said(a.resources("AWS::Serverless::Function")["ServeFunction"], "FunctionUrlConfig", "AuthType"), "Ref AuthType")
	b.want("how answers come", said(a.resources("AWS::Serverless::Function")["ServeFunction"], "FunctionUrlConfig", "InvokeMode"), "Ref InvokeMode")
	o := options.Default()
	if err := errorsOf(o.Set("CacheBytes", said(a.tree, "Parameters", "CacheBytes", "Default")), o.Set("MaxBulkLoads", said(set, "LATTICE_MAX_BULK_LOADS")), o.Validate()); err != "" {
		b.add("%s", err)
	}
	size, _ := strconv.Atoi(said(a.tree, "Parameters", "MemorySize", "Default"))
	if full := o.CacheBytes + int64(o.MaxBulkLoads)*o.BulkLoadBufferBytes; full > int64(size)<<20*3/4 {
		b.add("caches and bulk loads may fill %d MB", size)
	}
	return found
}

var logActions = []string{"logs:CreateLogStream", "logs:PutLogEvents"}

// samPrivileges objects to rights beyond writing the logs, and to callers other
// than the schedule.
func samPrivileges(a *aws) (found []string) {
	b := (*breaches)(&found)
	for name, f := range a.resources("AWS::Serverless::Function") {
		b.want(name+".Role", said(f, "Role"), "GetAtt FunctionRole.Arn")
		if at(f, "Policies") != nil || at(f, "Events") != nil {
			b.add("%s has policies or events of its own", name)
		}
	}
	roles := a.resources("AWS::IAM::Role")
	if len(roles) != 1 {
		b.add("%d roles", len(roles))
	}
	for name, role := range roles {
		if at(role, "ManagedPolicyArns") != nil {
			b.add("%s has managed policies", name)
		}
		trust, _ := at(role, "AssumeRolePolicyDocument", "Statement").([]any)
		if len(trust) != 1 || said(trust[0], "Principal") != "Service lambda.amazonaws.com" || said(trust[0], "Action") != "sts:AssumeRole" {
			b.add("%s trusts others than Lambda", name)
		}
		policies, _ := at(role, "Policies").([]any)
		for _, policy := range policies {
			statements, _ := at(policy, "PolicyDocument", "Statement").([]any)
			for _, s := range statements {
				b.want("actions", said(s, "Action"), "["+strings.Join(logActions, ", ")+"]")
				b.want("resources", said(s, "Resource"), "[GetAtt ServeLogs.Arn, GetAtt ScheduleLogs.Arn]")
			}
		}
		if len(policies) != 1 {
			b.add("%s has %d policies", name, len(policies))
		}
	}
	return append(found, samCallers(a)...)
}

// samCallers objects to callers other than the schedule, and everybody by the
// function URL where that is public. Since October 2025 a URL needs two permissions.
func samCallers(a *aws) (found []string) {
	b := (*breaches)(&found)
	wanted := map[string]map[string]string{
		"EveryMinutePermission":  {"Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com", "SourceArn": "GetAtt EveryMinute.Arn", "FunctionName": "Ref ScheduleFunction"},
		"PublicUrlPermission":    {"Action": "lambda:InvokeFunctionUrl", "Principal": "*", "FunctionUrlAuthType": "NONE", "FunctionName": "Ref ServeFunction"},
		"PublicInvokePermission": {"Action": "lambda:InvokeFunction", "Principal": "*", "InvokedViaFunctionUrl": "true", "FunctionName": "Ref ServeFunction"},
	}
	permissions := a.resources("AWS::Lambda::Permission")
	if len(permissions) != len(wanted) {
		b.add("%d permissions to call", len(permissions))
	}
	for name, properties := range wanted {
		for property, value := range properties {
			b.want(name+"."+property, said(permissions[name], property), value)
		}
		condition := ""
		if strings.HasPrefix(name, "Public") {
			condition = "Public"
		}
		b.want(name+".Condition", said(a.tree, "Resources", name, "Condition"), condition)
	}
	b.want("Public", said(a.tree, "Conditions", "Public"), "Equals [Ref AuthType, NONE]")
	return found
}

// samSchedule objects to a schedule that is not that of the code.
func samSchedule(a *aws) (found []string) {
	b := (*breaches)(&found)
	rule := a.resources("AWS::Events::Rule")["EveryMinute"]
	b.want("rate", said(rule, "ScheduleExpression"), schedule.RateAWS)
	b.want("state", said(rule, "State"), "ENABLED")
	targets, _ := at(rule, "Targets").([]any)
	if len(targets) != 1 {
		b.add("%d targets", len(targets))
		return found
	}
	b.want("target", said(targets[0], "Arn"), "GetAtt ScheduleFunction.Arn")
	b.want("retries", said(targets[0], "RetryPolicy", "MaximumRetryAttempts"), "0")
	// Without an input of its own, the event makes the function run every timer.
	if at(targets[0], "Input") != nil || at(targets[0], "InputTransformer") != nil {
		b.add("the target has an input")
	}
	invoked := a.resources("AWS::Serverless::Function")["ScheduleFunction"]
	b.want("retries of the function", said(invoked, "EventInvokeConfig", "MaximumRetryAttempts"), "0")
	return found
}

// samTimes objects to time-outs that cut what the service would end itself.
func samTimes(a *aws) (found []string) {
	b := (*breaches)(&found)
	o := options.Default()
	// A 20th of the time, 5 s at most, is kept free for the answer to get out.
	const margin = 5 * time.Second
	timers := len(schedule.Names())
	for name, need := range map[string]time.Duration{
		"ServeTimeout":    o.RequestTimeout + margin,
		"ScheduleTimeout": max(time.Duration(timers)*o.TickBudget, schedule.RoundsLast+o.TickBudget) + margin,
	} {
		for _, key := range []string{"Default", "MinValue"} {
			seconds, err := strconv.Atoi(said(a.tree, "Parameters", name, key))
			if err != nil || time.Duration(seconds)*time.Second < need {
				b.add("%s.%s is %d s, needed are %s", name, key, seconds, need)
			}
		}
		f := a.resources("AWS::Serverless::Function")[strings.TrimSuffix(name, "Timeout")+"Function"]
		b.want(name, said(f, "Timeout"), "Ref "+name)
	}
	return found
}

// samPackage objects to a function that is not what the package script makes.
func samPackage(a *aws) (found []string) {
	b := (*breaches)(&found)
	f := at(a.tree, "Globals", "Function")
	script := a.docs[packageScript]
	b.want("handler", said(f, "Handler"), "bootstrap")
	b.want("runtime", said(f, "Runtime"), "provided.al2023")
	b.want("processor", said(f, "Architectures"), "[Ref Architecture]")
	b.want("offered processors", said(a.tree, "Parameters", "Architecture", "AllowedValues"), "[arm64, x86_64]")
	b.want("package", said(f, "CodeUri", "Bucket")+", "+said(f, "CodeUri", "Key"), "Ref CodeBucket, Ref CodeKey")
	for _, want := range []string{"provided.al2023", "/bootstrap", "for processor in arm64 amd64", "lattice-awslambda-$processor.zip"} {
		if !strings.Contains(script, want) {
			b.add("%s lacks %q", packageScript, want)
		}
	}
	return found
}

const packageScript = "scripts/package.sh"

// alarmed are the metrics that must have an alarm, by the function.
var alarmed = []string{
	"ServeFunction Errors", "ServeFunction Throttles", "ServeFunction Duration", "ServeFunction Url5xxCount",
	"ScheduleFunction Errors", "ScheduleFunction Throttles", "ScheduleFunction Invocations",
}

// samAlarms objects to alarms that are missing, look at nothing, or tell nobody.
func samAlarms(a *aws) (found []string) {
	b := (*breaches)(&found)
	var seen []string
	for name, alarm := range a.resources("AWS::CloudWatch::Alarm") {
		for _, key := range []string{"AlarmActions", "OKActions"} {
			b.want(name+"."+key, said(alarm, key), "If [Notified, [Ref AlarmTopicArn], Ref AWS::NoValue]")
		}
		if said(alarm, "AlarmDescription") == "" || said(alarm, "TreatMissingData") == "" {
			b.add("%s does not say what it means, or what silence means", name)
		}
		metrics := []any{alarm}
		if list, ok := at(alarm, "Metrics").([]any); ok {
			metrics = nil
			for _, m := range list {
				if metric := at(m, "MetricStat", "Metric"); metric != nil {
					metrics = append(metrics, metric)
				}
			}
		}
		for _, m := range metrics {
			b.want(name+" looks at", said(m, "Namespace"), "AWS/Lambda")
			dimensions, _ := at(m, "Dimensions").([]any)
			if len(dimensions) == 1 && said(dimensions[0], "Name") == "FunctionName" {
				seen = append(seen, strings.TrimPrefix(said(dimensions[0], "Value"), "Ref ")+" "+said(m, "MetricName"))
			}
		}
	}
	for _, want := range alarmed {
		if !slices.Contains(seen, want) {
			b.add("no alarm looks at %s", want)
		}
	}
	missing := a.resources("AWS::CloudWatch::Alarm")["ScheduleMissingAlarm"]
	b.want("silence of the schedule", said(missing, "TreatMissingData"), "breaching")
	b.want("comparison", said(missing, "ComparisonOperator"), "LessThanThreshold")
	for name, logs := range a.resources("AWS::Logs::LogGroup") {
		function := strings.ToLower(strings.TrimSuffix(name, "Logs"))
		b.want(name, said(logs, "LogGroupName"), "Sub /aws/lambda/${AWS::StackName}-"+function)
		b.want(name+" kept", said(logs, "RetentionInDays"), "Ref LogRetentionDays")
		f := a.resources("AWS::Serverless::Function")[strings.TrimSuffix(name, "Logs")+"Function"]
		b.want("name of the function of "+name, said(f, "FunctionName"), "Sub ${AWS::StackName}-"+function)
	}
	return found
}
