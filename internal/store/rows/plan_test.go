package rows

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/plan"
)

// Guarantee: a plan has the form of limits that earlier versions read, unless it has a limit of requests in flight, which they
// would not apply: then they cannot read it. A newer form is refused, and the error says what to do.
func TestFormsOfLimits(t *testing.T) {
	for _, c := range []struct {
		limits  []plan.Limit
		earlier bool
	}{
		{nil, true},
		{[]plan.Limit{{Name: "a", Per: plan.PerKey, Quota: plan.Quota{Count: 5, Unit: calendar.Month}}}, true},
		{[]plan.Limit{{Name: "a", Per: plan.PerKey, Quota: plan.Quota{Count: 5, Unit: calendar.Month}}, {Name: "b", Per: plan.PerOwner, Concurrency: 5}}, false},
	} {
		text, err := encodeLimits(&plan.Plan{Limits: c.limits})
		if err != nil {
			t.Fatal(err)
		}
		read, list := plan.Plan{}, []plan.Limit(nil)
		if err := decodeLimits(&read, string(text)); err != nil || len(read.Limits) != len(c.limits) {
			t.Errorf("%s: got %+v and %v", text, read.Limits, err)
		}
		for i := range c.limits {
			if !read.Limits[i].Equal(&c.limits[i]) {
				t.Errorf("%s: got %+v, want %+v", text, read.Limits[i], c.limits[i])
			}
		}
		if err := json.Unmarshal(text, &list); (err == nil) != c.earlier {
			t.Errorf("%s: as a list of limits: %v", text, err)
		}
	}
	if err := decodeLimits(&plan.Plan{}, `{"form": 3, "limits": []}`); err == nil || !strings.Contains(err.Error(), "upgrade this node") {
		t.Errorf("a newer form: got %v", err)
	}
	for _, damaged := range []string{"", "{", "[", `{"form": 2, "limits": 5}`} {
		if err := decodeLimits(&plan.Plan{}, damaged); err == nil {
			t.Errorf("%q is read", damaged)
		}
	}
}
