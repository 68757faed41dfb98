package client_test

import (
	"encoding/json"
	"testing"

	"github.com/keygate/keygate/client"
)

// Guarantee: targets.md 1, an ejection is false or an object, in both directions, and a patch has what was set, with null for what
// was cleared.
func TestUpstreamsInJSON(t *testing.T) {
	for text, want := range map[string]client.Ejection{
		"false":                         {Off: true},
		`{"failures":3,"base":"20s"}`:   {Failures: 3, Base: "20s"},
		`{"max_percent":0}`:             {MaxPercent: new(int64(0))},
		`{"on":["reset"],"max":"5m"}`:   {On: []string{"reset"}, Max: "5m"},
		`{"failures":5,"on":["reset"]}`: {Failures: 5, On: []string{"reset"}},
	} {
		var got client.Ejection
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Off != want.Off {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
		for _, e := range []client.Ejection{got, want} {
			if b, err := json.Marshal(e); err != nil || string(b) != text {
				t.Errorf("got %s, %v; want %s", b, err, text)
			}
		}
	}
	p := client.UpstreamPatch{
		Targets: client.Set([]client.TargetInput{{URL: "https://a"}}), Ejection: client.Set(client.Ejection{Off: true}), Timeout: client.Clear[string](),
	}
	if b, err := json.Marshal(p); err != nil || string(b) != `{"targets":[{"url":"https://a"}],"ejection":false,"timeout":null}` {
		t.Errorf("got %s, %v", b, err)
	}
}
