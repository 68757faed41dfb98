// Command schemas writes JSON Schemas of the kinds of objects that the Helm chart makes to
// testdata/schemas, from Go modules that have them:
//
//	go run ./schemas
//
// It downloads about 60 MB. The schemas allow only the fields that they name.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The modules. Their versions are the API versions that the chart is checked against.
const (
	kubernetes = "k8s.io/kubernetes@v1.37.0"
	prometheus = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	gatewayAPI = "sigs.k8s.io/gateway-api@v1.4.0"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if err := writeKubernetes(); err != nil {
		return err
	}
	for _, one := range []struct{ module, file, version, name string }{
		{prometheus, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml", "v1", "servicemonitor.json"},
		{prometheus, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml", "v1", "prometheusrule.json"},
		{gatewayAPI, "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml", "v1", "httproute.json"},
	} {
		if err := writeResource(one.module, one.file, one.version, one.name); err != nil {
			return fmt.Errorf("%s: %w", one.file, err)
		}
	}
	return nil
}

// read returns a file of a module, which it downloads.
func read(module, file string) ([]byte, error) {
	c := exec.Command("go", "mod", "download", "-json", module) //nolint:gosec // one of the constants
	c.Dir = os.TempDir()                                        // outside of a module, so that no go.mod changes
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download %s: %w: %s", module, err, out)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(found.Dir, filepath.FromSlash(file)))
}

// writeKubernetes writes the definitions of Kubernetes that the kinds of the chart need.
func writeKubernetes() error {
	content, err := read(kubernetes, "api/openapi-spec/swagger.json")
	if err != nil {
		return err
	}
	var document struct{ Definitions map[string]any }
	if err := json.Unmarshal(content, &document); err != nil {
		return err
	}
	needed := map[string]any{}
	waiting := []string{
		"io.k8s.api.apps.v1.StatefulSet", "io.k8s.api.batch.v1.CronJob", "io.k8s.api.batch.v1.Job", "io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.PersistentVolumeClaim",
		"io.k8s.api.core.v1.Secret", "io.k8s.api.core.v1.Service", "io.k8s.api.core.v1.ServiceAccount", "io.k8s.api.networking.v1.Ingress",
		"io.k8s.api.networking.v1.NetworkPolicy", "io.k8s.api.policy.v1.PodDisruptionBudget",
	}
	for len(waiting) > 0 {
		name := waiting[0]
		waiting = waiting[1:]
		if needed[name] != nil {
			continue
		}
		schema, ok := document.Definitions[name].(map[string]any)
		if !ok {
			return fmt.Errorf("%s has no definition %s", kubernetes, name)
		}
		switch short := name[strings.LastIndex(name, ".")+1:]; short {
		case "IntOrString":
			schema = map[string]any{"type": []string{"integer", "string"}}
		case "Quantity":
			schema = map[string]any{"type": []string{"number", "string"}}
		}
		strict(schema)
		needed[name] = schema
		waiting = append(waiting, references(schema)...)
	}
	// One definition a line, so that a change of the version can be read.
	var out bytes.Buffer
	out.WriteString("{\"definitions\": {\n")
	for i, name := range slices.Sorted(maps.Keys(needed)) {
		if i > 0 {
			out.WriteString(",\n")
		}
		text, err := json.Marshal(needed[name])
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%q: %s", name, text)
	}
	out.WriteString("\n}}\n")
	return os.WriteFile("testdata/schemas/kubernetes.json", out.Bytes(), 0o644) //nolint:gosec // a file of the repository
}

// writeResource writes the schema in a CustomResourceDefinition.
func writeResource(module, file, version, name string) error {
	content, err := read(module, file)
	if err != nil {
		return err
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(content, &definition); err != nil {
		return err
	}
	for _, v := range definition.Spec.Versions {
		if v.Name != version {
			continue
		}
		schema := v.Schema.OpenAPIV3Schema
		strict(schema)
		schema["properties"].(map[string]any)["metadata"] = map[string]any{
			"$ref": "kubernetes.json#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
		}
		text, err := json.MarshalIndent(schema, "", " ")
		if err != nil {
			return err
		}
		return os.WriteFile("testdata/schemas/"+name, append(text, '\n'), 0o644) //nolint:gosec // a file of the repository
	}
	return fmt.Errorf("has no version %s", version)
}

// strict changes a schema in place: it removes the descriptions, and refuses fields that the schema does not name.
func strict(schema map[string]any) {
	if schema["x-kubernetes-int-or-string"] == true {
		delete(schema, "anyOf")
		schema["type"] = []string{"integer", "string"}
	}
	_, named := schema["properties"]
	_, others := schema["additionalProperties"]
	if named && !others && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for key, v := range schema {
		switch {
		case key == "description", key == "default", key == "format", strings.HasPrefix(key, "x-"):
			delete(schema, key)
		case key == "properties":
			for _, property := range v.(map[string]any) {
				strict(property.(map[string]any))
			}
		default:
			strictIn(v)
		}
	}
}

// strictIn changes the schemas in a value of a schema.
func strictIn(v any) {
	switch v := v.(type) {
	case map[string]any:
		strict(v)
	case []any:
		for _, item := range v {
			strictIn(item)
		}
	}
}

// references returns the names of the definitions to which a schema refers.
func references(v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			names = append(names, ref[strings.LastIndex(ref, "/")+1:])
		}
		for _, item := range v {
			names = append(names, references(item)...)
		}
	case []any:
		for _, item := range v {
			names = append(names, references(item)...)
		}
	}
	return names
}
