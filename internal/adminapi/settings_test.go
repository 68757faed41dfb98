package adminapi_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: contract 5, a configuration file can give the same settings as a call. The record has all
// of them except upstream_ca.
func TestFileHasTheSettingsOfTheAPI(t *testing.T) {
	schemas := adminapi.Document().Components.Schemas.Map()
	want := slices.Sorted(slices.Values(gateway.SettingNames()))
	for schema, others := range map[string][]string{
		"CreateGatewayRequest": {"spec", "config", "upstreams", "allow_duplicate", "default_plan_id"}, "UpdateGatewayRequest": {"allow_duplicate", "default_plan_id"}, "Gateway": {"gateway_id", "revision", "created_at", "warnings", "default_plan_id", "target_count"},
	} {
		got := slices.DeleteFunc(slices.Sorted(maps.Keys(schemas[schema].Properties)), func(name string) bool { return slices.Contains(others, name) })
		want := want
		if schema == "Gateway" {
			want = slices.DeleteFunc(slices.Clone(want), func(name string) bool { return name == "upstream_ca" })
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the settings\n%q; the file has\n%q", schema, got, want)
		}
	}
}
