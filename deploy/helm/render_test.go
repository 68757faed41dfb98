package helm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

const chartDir = "keygate"

// object is an object of Kubernetes, or a part of one.
type object = map[string]any

// release is what a chart is rendered for.
type release struct {
	values object // replace values of values.yaml
	// existing has what lookup finds, by KIND/NAME.
	existing map[string]object
	upgrade  bool
}

// metadata is the part of Chart.yaml that templates see.
type metadata struct{ Name, Version, AppVersion string }

// files gives templates the files of the chart.
type files struct{}

func (files) Get(name string) string {
	content, err := os.ReadFile(filepath.Join(chartDir, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return string(content)
}

// readYAML decodes a file of one document as Helm does.
func readYAML(t testing.TB, path string) object {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := yaml.UnmarshalStrict(content, &o); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return o
}

// parse returns the values of a YAML text.
func parse(t testing.TB, text string) object {
	t.Helper()
	o := object{}
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return o
}

// over returns values with others over them, as Helm merges them: maps by key; null removes a value.
func over(values, others object) object {
	merged := maps.Clone(values)
	for key, v := range others {
		below, isMap := merged[key].(object)
		above, both := v.(object)
		switch {
		case v == nil:
			delete(merged, key)
		case isMap && both:
			merged[key] = over(below, above)
		default:
			merged[key] = v
		}
	}
	return merged
}

// render returns what each template of the chart renders to, by its name, or the error that Helm would
// show: from the schema of the values, or from a template.
func render(t testing.TB, r release) (map[string]string, error) {
	t.Helper()
	values := over(readYAML(t, chartDir+"/values.yaml"), r.values)
	if err := valuesSchema(t).Validate(values); err != nil {
		return nil, err
	}
	set := template.New("chart").Option("missingkey=zero")
	set.Funcs(functions(set, r))
	paths, err := filepath.Glob(chartDir + "/templates/*")
	if err != nil || len(paths) < 5 {
		t.Fatalf("found %q, %v", paths, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := set.New(filepath.ToSlash(path)).Parse(string(content)); err != nil {
			t.Fatal(err)
		}
	}
	chart := readYAML(t, chartDir+"/Chart.yaml")
	context := object{
		"Values": values, "Files": files{},
		"Chart":   metadata{chart["name"].(string), chart["version"].(string), chart["appVersion"].(string)},
		"Release": object{"Name": "prod", "Namespace": "keygate", "Service": "Helm", "IsInstall": !r.upgrade, "IsUpgrade": r.upgrade},
	}
	rendered := map[string]string{}
	for _, path := range paths {
		var out bytes.Buffer
		if err := set.ExecuteTemplate(&out, filepath.ToSlash(path), context); err != nil {
			return nil, err
		}
		rendered[filepath.Base(path)] = strings.ReplaceAll(out.String(), "<no value>", "")
	}
	return rendered, nil
}

// functions returns the functions that Helm gives to templates, as far as this chart may use them: sprig's,
// except for the environment, and Helm's own.
func functions(set *template.Template, r release) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	maps.Copy(all, template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := set.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"fail": func(message string) (string, error) { return "", errors.New(message) },
		"required": func(message string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(message)
			}
			return v, nil
		},
		"lookup": func(_, kind, _, name string) object {
			return r.existing[kind+"/"+name]
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"fromYaml": func(text string) (object, error) {
			o := object{}
			return o, yaml.Unmarshal([]byte(text), &o)
		},
	})
	return all
}

// objects renders the chart and returns its objects, by KIND/NAME. Each is checked against its schema.
func objects(t testing.TB, r release) map[string]object {
	t.Helper()
	rendered, err := render(t, r)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]object{}
	for name, text := range rendered {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, o := range decode(t, name, text) {
			id := fmt.Sprintf("%s/%s", o["kind"], at(o, "metadata", "name"))
			if found[id] != nil {
				t.Errorf("there are two objects %s", id)
			}
			found[id] = o
			if err := check(t, o); err != nil {
				t.Errorf("%s: %v\n%s", id, err, text)
			}
		}
	}
	return found
}

// decode returns the objects of a text. A key that appears twice is an error.
func decode(t testing.TB, name, text string) (all []object) {
	t.Helper()
	for decoder := yamlv3.NewDecoder(strings.NewReader(text)); ; {
		var o object
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v\n%s", name, err, text)
		case o != nil:
			all = append(all, o)
		}
	}
}

// at returns the value at a path of an object: string keys of maps, and indexes of lists. It is nil if there
// is none.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := v.(object)
			v = o[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// schemaCompiler keeps the schemas that it has compiled, since reading them is slow.
var schemaCompiler = struct {
	sync.Mutex
	*jsonschema.Compiler
}{Compiler: jsonschema.NewCompiler()}

// compile returns a schema in a file.
func compile(t testing.TB, location string) *jsonschema.Schema {
	t.Helper()
	schemaCompiler.Lock()
	defer schemaCompiler.Unlock()
	schemaCompiler.DefaultDraft(jsonschema.Draft7)
	schema, err := schemaCompiler.Compile(location)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func valuesSchema(t testing.TB) *jsonschema.Schema {
	return compile(t, chartDir+"/values.schema.json")
}

// schemas has the schema of each kind.
var schemas = map[string]string{
	"apps/v1 StatefulSet":                     "kubernetes.json#/definitions/io.k8s.api.apps.v1.StatefulSet",
	"batch/v1 CronJob":                        "kubernetes.json#/definitions/io.k8s.api.batch.v1.CronJob",
	"batch/v1 Job":                            "kubernetes.json#/definitions/io.k8s.api.batch.v1.Job",
	"v1 ConfigMap":                            "kubernetes.json#/definitions/io.k8s.api.core.v1.ConfigMap",
	"v1 PersistentVolumeClaim":                "kubernetes.json#/definitions/io.k8s.api.core.v1.PersistentVolumeClaim",
	"v1 Secret":                               "kubernetes.json#/definitions/io.k8s.api.core.v1.Secret",
	"v1 Service":                              "kubernetes.json#/definitions/io.k8s.api.core.v1.Service",
	"v1 ServiceAccount":                       "kubernetes.json#/definitions/io.k8s.api.core.v1.ServiceAccount",
	"networking.k8s.io/v1 Ingress":            "kubernetes.json#/definitions/io.k8s.api.networking.v1.Ingress",
	"networking.k8s.io/v1 NetworkPolicy":      "kubernetes.json#/definitions/io.k8s.api.networking.v1.NetworkPolicy",
	"policy/v1 PodDisruptionBudget":           "kubernetes.json#/definitions/io.k8s.api.policy.v1.PodDisruptionBudget",
	"gateway.networking.k8s.io/v1 HTTPRoute":  "httproute.json",
	"monitoring.coreos.com/v1 PrometheusRule": "prometheusrule.json",
	"monitoring.coreos.com/v1 ServiceMonitor": "servicemonitor.json",
}

// check checks an object against the schema of its kind, which allows no unknown fields.
func check(t testing.TB, o object) error {
	t.Helper()
	kind := fmt.Sprintf("%v %v", o["apiVersion"], o["kind"])
	location, ok := schemas[kind]
	if !ok {
		return fmt.Errorf("there is no schema of %s in testdata/schemas", kind)
	}
	if at(o, "metadata", "name") == nil {
		return errors.New("it has no name")
	}
	return compile(t, "testdata/schemas/"+location).Validate(o)
}
