package helm

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// releases returns a release for each file in testdata/values, and a release with the default values.
func releases(t *testing.T) map[string]release {
	t.Helper()
	paths, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(paths) < 5 {
		t.Fatalf("found %q, %v", paths, err)
	}
	all := map[string]release{"default values": {}}
	for _, path := range paths {
		all[filepath.Base(path)] = release{values: readYAML(t, path)}
	}
	return all
}

// Guarantee: for each set of values the objects are valid, have no unknown fields, and are the objects
// that the values ask for.
func TestObjectsAreValid(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"default values": {"ConfigMap/prod-keygate", "NetworkPolicy/prod-keygate", "Service/prod-keygate", "Service/prod-keygate-admin", "Service/prod-keygate-ops", "ServiceAccount/prod-keygate", "StatefulSet/prod-keygate"},
		"several-nodes.yaml": {
			"ConfigMap/prod-keygate", "NetworkPolicy/prod-keygate", "PodDisruptionBudget/prod-keygate", "PrometheusRule/prod-keygate", "Secret/prod-keygate-secret-key", "Service/prod-keygate", "Service/prod-keygate-admin", "Service/prod-keygate-ops",
			"ServiceAccount/prod-keygate", "ServiceMonitor/prod-keygate", "StatefulSet/prod-keygate",
		},
		"ingress.yaml":    {"ConfigMap/gateway", "Ingress/gateway", "Service/gateway", "Service/gateway-admin", "Service/gateway-ops", "StatefulSet/gateway"},
		"control.yaml":    {"ConfigMap/prod-keygate", "NetworkPolicy/prod-keygate", "Service/prod-keygate-admin", "Service/prod-keygate-ops", "ServiceAccount/prod-keygate", "StatefulSet/prod-keygate"},
		"gateways.yaml":   {"ConfigMap/prod-keygate", "NetworkPolicy/prod-keygate", "PodDisruptionBudget/prod-keygate", "Service/prod-keygate", "Service/prod-keygate-ops", "ServiceAccount/prod-keygate", "StatefulSet/prod-keygate"},
		"http-route.yaml": {"ConfigMap/prod-keygate", "HTTPRoute/prod-keygate", "NetworkPolicy/prod-keygate", "Service/prod-keygate", "Service/prod-keygate-admin", "Service/prod-keygate-ops", "ServiceAccount/prod-keygate", "StatefulSet/prod-keygate"},
	}
	want["one-node.yaml"] = want["default values"]
	for name, r := range releases(t) {
		if got := slices.Sorted(maps.Keys(objects(t, r))); !slices.Equal(got, want[name]) {
			t.Errorf("%s: the objects are %q, want %q", name, got, want[name])
		}
	}
}

// Guarantee: a pod runs as 65532 without privileges, cannot gain any, writes to its volume alone, and has no
// token of Kubernetes.
func TestPodsHaveNoPrivileges(t *testing.T) {
	t.Parallel()
	for name, r := range releases(t) {
		for id, o := range objects(t, r) {
			if o["kind"] == "ServiceAccount" && o["automountServiceAccountToken"] != false {
				t.Errorf("%s: %s mounts its token", name, id)
			}
			if spec := at(o, "spec", "template", "spec"); spec != nil {
				unprivileged(t, name+": "+id, spec)
			}
		}
	}
}

// unprivileged checks the specification of a pod.
func unprivileged(t *testing.T, name string, spec any) {
	t.Helper()
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC", "initContainers"} {
		if got := at(spec, field); got != nil {
			t.Errorf("%s has %s: %v", name, field, got)
		}
	}
	if at(spec, "automountServiceAccountToken") != false {
		t.Errorf("%s mounts a token", name)
	}
	pod := at(spec, "securityContext")
	if at(pod, "runAsNonRoot") != true || at(pod, "runAsUser") != 65532 || at(pod, "seccompProfile", "type") != "RuntimeDefault" {
		t.Errorf("%s has the security context %v", name, pod)
	}
	// Else the kubelet makes secret.key readable for the group.
	if at(pod, "fsGroupChangePolicy") != "OnRootMismatch" {
		t.Errorf("%s changes the modes of files at each start", name)
	}
	containers, _ := at(spec, "containers").([]any)
	for _, c := range containers {
		context := at(c, "securityContext")
		if at(context, "readOnlyRootFilesystem") != true || at(context, "allowPrivilegeEscalation") != false || at(context, "privileged") != false ||
			at(context, "capabilities", "drop", 0) != "ALL" || at(context, "capabilities", "add") != nil || at(context, "runAsNonRoot") != true {
			t.Errorf("%s: a container has the security context %v", name, context)
		}
		if at(c, "resources", "requests") == nil || at(c, "resources", "limits", "memory") == nil {
			t.Errorf("%s: a container has the resources %v", name, at(c, "resources"))
		}
	}
	if len(containers) != 1 {
		t.Errorf("%s has %d containers", name, len(containers))
	}
}

// Guarantee: however long the drain takes, Kubernetes waits for its end, and for the 10 s in which the
// server then writes the records in memory.
func TestGracePeriodCoversTheDrain(t *testing.T) {
	t.Parallel()
	for _, delay := range []int{0, 1, 10, 90, 3600} {
		for _, timeout := range []int{0, 30, 86400} {
			pod := podOf(t, release{values: object{"drain": object{"delaySeconds": float64(delay), "timeoutSeconds": float64(timeout)}}})
			if grace, _ := at(pod, "terminationGracePeriodSeconds").(int); grace <= delay+timeout+10 {
				t.Errorf("with a drain of %d s and %d s the grace period is %d s", delay, timeout, grace)
			}
			if env := environment(pod); env["KEYGATE_DRAIN_DELAY"] != fmt.Sprintf("%ds", delay) || env["KEYGATE_DRAIN_TIMEOUT"] != fmt.Sprintf("%ds", timeout) {
				t.Errorf("a drain of %d s and %d s is %v", delay, timeout, env)
			}
		}
	}
}

// podOf returns the specification of the pods.
func podOf(t *testing.T, r release) any {
	t.Helper()
	return at(kindOf(t, objects(t, r), "StatefulSet"), "spec", "template", "spec")
}

// kindOf returns the only object of a kind.
func kindOf(t *testing.T, all map[string]object, kind string) (found object) {
	t.Helper()
	for _, o := range all {
		if o["kind"] == kind {
			if found != nil {
				t.Fatalf("there are two of %s", kind)
			}
			found = o
		}
	}
	if found == nil {
		t.Fatalf("there is no %s", kind)
	}
	return found
}

// environment returns the variables of the container of a pod. Variables that Kubernetes reads from
// elsewhere have a text that says from where.
func environment(pod any) map[string]string {
	env := map[string]string{}
	list, _ := at(pod, "containers", 0, "env").([]any)
	for _, v := range list {
		name, _ := at(v, "name").(string)
		switch {
		case at(v, "value") != nil:
			env[name] = at(v, "value").(string)
		case at(v, "valueFrom", "secretKeyRef") != nil:
			env[name] = fmt.Sprintf("secret %s %s", at(v, "valueFrom", "secretKeyRef", "name"), at(v, "valueFrom", "secretKeyRef", "key"))
		default:
			env[name] = fmt.Sprintf("field %s", at(v, "valueFrom", "fieldRef", "fieldPath"))
		}
	}
	return env
}

// Guarantee: the probes use the operators' address: /livez says whether the process lives, /readyz
// whether it gets requests. A node that is not ready gets no more requests after fewer seconds than the
// default drain delay.
func TestProbes(t *testing.T) {
	t.Parallel()
	for name, r := range releases(t) {
		container := at(podOf(t, r), "containers", 0)
		for probe, path := range map[string]string{"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"} {
			if get := at(container, probe, "httpGet"); at(get, "path") != path || at(get, "port") != "ops" {
				t.Errorf("%s: %s asks %v", name, probe, get)
			}
		}
		period, _ := at(container, "readinessProbe", "periodSeconds").(int)
		failures, _ := at(container, "readinessProbe", "failureThreshold").(int)
		if delay := readYAML(t, chartDir+"/values.yaml")["drain"].(object)["delaySeconds"].(float64); period*failures >= int(delay) {
			t.Errorf("%s: a node that is not ready gets requests for %d s, and the drain delay is %v s", name, period*failures, delay)
		}
	}
}

// Guarantee: there is a disruption budget for several nodes, and none for a single node, which could never be evicted.
func TestDisruptionBudgetIsForSeveralNodes(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 2, 3, 10} {
		values := readYAML(t, "testdata/values/several-nodes.yaml")
		values["replicas"] = float64(replicas)
		all := objects(t, release{values: values})
		budget, has := all["PodDisruptionBudget/prod-keygate"]
		if has != (replicas > 1) {
			t.Errorf("with %d nodes there is a budget: %t", replicas, has)
		}
		if has && at(budget, "spec", "maxUnavailable") != 1 {
			t.Errorf("with %d nodes the budget is %v", replicas, budget["spec"])
		}
		set := all["StatefulSet/prod-keygate"]
		if spread, _ := at(set, "spec", "template", "spec", "topologySpreadConstraints").([]any); at(set, "spec", "replicas") != replicas || len(spread) > 0 != (replicas > 1) {
			t.Errorf("with %d nodes the set has %v replicas and is spread by %v", replicas, at(set, "spec", "replicas"), spread)
		}
	}
}

// Guarantee: every selector selects the pods, also with labels of the user. Every port and every object that another
// object names exists.
func TestReferencesBetweenObjects(t *testing.T) {
	t.Parallel()
	for name, r := range releases(t) {
		all := objects(t, r)
		set := kindOf(t, all, "StatefulSet")
		labels := at(set, "spec", "template", "metadata", "labels")
		ports := map[any]bool{}
		list, _ := at(set, "spec", "template", "spec", "containers", 0, "ports").([]any)
		for _, p := range list {
			ports[at(p, "name")] = true
		}
		for id, o := range all {
			var selector any
			switch o["kind"] {
			case "Service":
				selector = at(o, "spec", "selector")
				if target := at(o, "spec", "ports", 0, "targetPort"); !ports[target] {
					t.Errorf("%s: %s leads to the port %v", name, id, target)
				}
			case "StatefulSet", "PodDisruptionBudget":
				selector = at(o, "spec", "selector", "matchLabels")
			case "NetworkPolicy":
				selector = at(o, "spec", "podSelector", "matchLabels")
				rules, _ := at(o, "spec", "ingress").([]any)
				for _, rule := range rules {
					if port := at(rule, "ports", 0, "port"); !ports[port] {
						t.Errorf("%s: %s allows the port %v", name, id, port)
					}
				}
			case "ServiceMonitor":
				ops := all["Service/prod-keygate-ops"]
				if !selects(at(o, "spec", "selector", "matchLabels"), at(ops, "metadata", "labels")) || at(o, "spec", "endpoints", 0, "port") != at(ops, "spec", "ports", 0, "name") {
					t.Errorf("%s: %s does not select the service %v", name, id, ops)
				}
				continue
			case "Ingress":
				backend := at(o, "spec", "rules", 0, "http", "paths", 0, "backend", "service")
				service := all[fmt.Sprintf("Service/%s", at(backend, "name"))]
				if at(service, "spec", "ports", 0, "name") != at(backend, "port", "name") {
					t.Errorf("%s: %s leads to %v", name, id, backend)
				}
				continue
			case "HTTPRoute":
				backend := at(o, "spec", "rules", 0, "backendRefs", 0)
				service := all[fmt.Sprintf("Service/%s", at(backend, "name"))]
				if at(service, "spec", "ports", 0, "port") != at(backend, "port") {
					t.Errorf("%s: %s leads to %v", name, id, backend)
				}
				continue
			default:
				continue
			}
			if !selects(selector, labels) {
				t.Errorf("%s: %s selects %v, and the pods are %v", name, id, selector, labels)
			}
		}
		if all[fmt.Sprintf("Service/%s", at(set, "spec", "serviceName"))] == nil {
			t.Errorf("%s: there is no service %v", name, at(set, "spec", "serviceName"))
		}
		if want := fmt.Sprintf("ServiceAccount/%s", at(set, "spec", "template", "spec", "serviceAccountName")); all[want] == nil && name != "ingress.yaml" {
			t.Errorf("%s: there is no %s", name, want)
		}
	}
}

// selects reports whether a selector, which is not empty, selects labels.
func selects(selector, labels any) bool {
	wanted, _ := selector.(object)
	has, _ := labels.(object)
	for key, v := range wanted {
		if has[key] != v {
			return false
		}
	}
	return len(wanted) > 0
}

// Guarantee: labels of the user for pods do not replace those that selectors need.
func TestLabelsOfTheUserDoNotReplaceSelectors(t *testing.T) {
	t.Parallel()
	all := objects(t, release{values: object{"podLabels": object{"app.kubernetes.io/name": "other", "team": "platform"}}})
	set := all["StatefulSet/prod-keygate"]
	if labels := at(set, "spec", "template", "metadata", "labels"); !selects(at(set, "spec", "selector", "matchLabels"), labels) || at(labels, "team") != "platform" {
		t.Errorf("the pods have the labels %v", labels)
	}
}

// Guarantee: with the network policy, only selected pods reach the management API and the metrics, and none
// do without a selection; the gateway is open unless callers are selected; and names can be resolved even if
// egress is restricted.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	open := kindOf(t, objects(t, release{}), "NetworkPolicy")
	if rules, _ := at(open, "spec", "ingress").([]any); len(rules) != 1 || at(rules[0], "ports", 0, "port") != "gateway" || at(rules[0], "from") != nil {
		t.Errorf("by default %v is allowed", rules)
	}
	selected := kindOf(t, objects(t, release{values: readYAML(t, "testdata/values/several-nodes.yaml")}), "NetworkPolicy")
	rules, _ := at(selected, "spec", "ingress").([]any)
	for i, want := range []string{"gateway", "admin", "ops"} {
		if at(rules, i, "ports", 0, "port") != want || at(rules, i, "from") == nil || at(rules, i, "ports", 1) != nil {
			t.Errorf("rule %d is %v, want one for %s alone, from somewhere", i, at(rules, i), want)
		}
	}
	if at(selected, "spec", "policyTypes", 1) != "Egress" || at(selected, "spec", "egress", 0, "ports", 0, "port") != 53 || at(selected, "spec", "egress", 1, "ports", 0, "port") != 5432 {
		t.Errorf("egress is %v", at(selected, "spec", "egress"))
	}
}

// Guarantee: the secret key is created once. An upgrade finds it in the cluster, and uninstalling the
// release keeps it.
func TestGeneratedSecretKeySurvives(t *testing.T) {
	t.Parallel()
	r := release{values: object{"secretKey": object{"generate": true}}}
	first := objects(t, r)["Secret/prod-keygate-secret-key"]
	if at(first, "metadata", "annotations", "helm.sh/resource-policy") != "keep" {
		t.Errorf("the secret has the annotations %v", at(first, "metadata", "annotations"))
	}
	r.upgrade, r.existing = true, map[string]object{"Secret/prod-keygate-secret-key": first}
	second := objects(t, r)["Secret/prod-keygate-secret-key"]
	if at(second, "data", "secret-key") != at(first, "data", "secret-key") {
		t.Error("the upgrade changes the secret key")
	}
	r.existing["Secret/prod-keygate-secret-key"] = object{"data": object{}}
	if _, err := render(t, r); err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("with a secret without the key, the error is %v", err)
	}
}

// Guarantee: an alert of the chart is one of deploy/grafana.
func TestAlertsAreThoseOfGrafana(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile(chartDir + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := os.ReadFile("../grafana/alerts.yaml"); err != nil || !bytes.Equal(own, other) {
		t.Errorf("copy deploy/grafana/alerts.yaml to deploy/helm/keygate/files: they differ (%v)", err)
	}
	rule := objects(t, release{values: object{"prometheusRule": object{"enabled": true}}})["PrometheusRule/prod-keygate"]
	if rules, _ := at(rule, "spec", "groups", 0, "rules").([]any); len(rules) < 10 {
		t.Errorf("there are %d alerts", len(rules))
	}
}

// Guarantee: the check of objects refuses unknown fields, wrong types and missing fields, in a pod as in a
// resource of an operator.
func TestCheckIsStrict(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(all map[string]object) object{
		"a field of the set": func(all map[string]object) object {
			set := all["StatefulSet/prod-keygate"]
			set["spec"].(object)["replica"] = 1
			return set
		},
		"a field of a container": func(all map[string]object) object {
			set := all["StatefulSet/prod-keygate"]
			at(set, "spec", "template", "spec", "containers", 0).(object)["command_"] = []any{}
			return set
		},
		"the type of a field": func(all map[string]object) object {
			set := all["StatefulSet/prod-keygate"]
			at(set, "spec", "template", "spec").(object)["terminationGracePeriodSeconds"] = "45s"
			return set
		},
		"a field that is missing": func(all map[string]object) object {
			set := all["StatefulSet/prod-keygate"]
			delete(set["spec"].(object), "selector")
			return set
		},
		"a field of a monitor": func(all map[string]object) object {
			monitor := all["ServiceMonitor/prod-keygate"]
			at(monitor, "spec", "endpoints", 0).(object)["every"] = "30s"
			return monitor
		},
		"a field of the metadata of a monitor": func(all map[string]object) object {
			monitor := all["ServiceMonitor/prod-keygate"]
			monitor["metadata"].(object)["label"] = object{}
			return monitor
		},
	} {
		if err := check(t, change(objects(t, release{values: readYAML(t, "testdata/values/several-nodes.yaml")}))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
