package adminapi

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
)

// fieldNames returns the JSON names of a struct's fields, those of embedded structs included.
func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		} else if f.Anonymous {
			names = append(names, fieldNames(f.Type)...)
		}
	}
	return names
}

// Guarantee: contract 5, a configuration file can give every setting that a call can, and no other. A
// new field of a call fails this test until the table in package gateway has it.
func TestFileHasTheSettingsOfTheAPI(t *testing.T) {
	want := slices.Sorted(slices.Values(gateway.SettingNames()))
	for _, body := range []reflect.Type{reflect.TypeFor[createGatewayRequest](), reflect.TypeFor[updateGatewayRequest]()} {
		got := slices.DeleteFunc(fieldNames(body), func(name string) bool { return name == "spec" || name == "config" })
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s has the settings\n%q; the file has\n%q", body.Name(), got, want)
		}
	}
	record := slices.DeleteFunc(fieldNames(reflect.TypeFor[gatewayRecord]()), func(name string) bool {
		return name == "gateway_id" || name == "revision" || name == "created_at"
	})
	if slices.Sort(record); !slices.Equal(record, slices.DeleteFunc(slices.Clone(want), func(name string) bool { return name == "upstream_ca" })) {
		t.Errorf("the record has the settings\n%q; the file has\n%q", record, want)
	}
}
