package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/validation"
)

// validationRecord is what requests did otherwise than the document of their gateway says.
type validationRecord struct {
	Mode      string                 `json:"mode" enum:"off,report,enforce" doc:"The setting validate of the gateway." example:"report"`
	Requests  int64                  `json:"requests" doc:"Requests of the last 24 hours that were held against the document." example:"48201"`
	Refused   int64                  `json:"refused" doc:"How many of them did not meet it: enforce refuses exactly these." example:"12"`
	Keys      int64                  `json:"keys" doc:"Number of keys with which they were made, up to 100." example:"3"`
	Skipped   int64                  `json:"skipped" doc:"Requests that were not checked, because their operation is unchecked or too many bodies were held." example:"0"`
	Unchecked []uncheckedRecord      `json:"unchecked" nullable:"false" doc:"Operations whose requests are not checked."`
	Data      []validationDataRecord `json:"data" nullable:"false" doc:"What requests did otherwise, the most frequent first: at most 100 different ones."`
}

type uncheckedRecord struct {
	Method string `json:"method" doc:"Method of the operation." example:"POST"`
	Path   string `json:"path" doc:"Path of its route." example:"/orders"`
	Reason string `json:"reason" doc:"Why it is unchecked." example:"line 12, column 5: the pattern has a lookahead, which is not supported"`
}

type validationDataRecord struct {
	Method   string                 `json:"method" doc:"Method of the operation." example:"POST"`
	Path     string                 `json:"path" doc:"Path of its route." example:"/orders"`
	In       string                 `json:"place" enum:"path,query,header,cookie,content_type,body" doc:"Part of the request." example:"body"`
	Pointer  string                 `json:"pointer" doc:"JSON pointer in the document to what is not met." example:"/components/schemas/order/properties/qty"`
	Rule     string                 `json:"rule" doc:"Keyword of the schema that is not met, or a word for what is wrong with the request itself." example:"minimum"`
	Message  string                 `json:"message" doc:"What must be, of which parameter or property of the body. It has no value of a request." example:"qty must be ≥ 1"`
	Requests int64                  `json:"requests" doc:"Requests of the last 24 hours." example:"12"`
	Keys     int64                  `json:"keys" doc:"Number of keys with which they were made, up to 100." example:"3"`
	Last     []validationLastRecord `json:"last" nullable:"false" doc:"The newest 100 of them."`
}

type validationLastRecord struct {
	Time  time.Time `json:"time" doc:"When the request was made." example:"2026-07-01T12:00:00.000000Z"`
	KeyID *string   `json:"key_id" doc:"The key; null without one." example:"key_01j0000000000000000000000a"`
}

func (a *API) validationOperations() []operation {
	return []operation{{
		id: "getValidation", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/validation", tag: "Documents",
		summary:     "Report on requests and the document",
		description: "Returns what the requests of the last 24 hours did otherwise than the OpenAPI document of the gateway says, on all nodes, up to some seconds ago, and which operations are unchecked. It has neither values of requests nor names that callers have made up.",
		success:     http.StatusOK, result: reflect.TypeFor[validationRecord](),
		run: func(c *call) (response, error) {
			return respond(presentValidation)(a.cfg.Control.Validation(c.ctx, &c.actor, c.params["gateway_id"]))
		},
	}}
}

func presentValidation(v *control.Validation) response {
	sum := v.Totals.Sum()
	r := validationRecord{
		Mode: string(v.Mode), Requests: sum.Requests, Refused: sum.Refused, Keys: int64(len(v.Totals.Keys)), Skipped: sum.Unchecked,
		Unchecked: []uncheckedRecord{}, Data: []validationDataRecord{},
	}
	for _, u := range v.Unchecked {
		r.Unchecked = append(r.Unchecked, uncheckedRecord(u))
	}
	for _, row := range v.Rows {
		r.Data = append(r.Data, presentValidationRow(row))
	}
	return response{status: http.StatusOK, body: r}
}

func presentValidationRow(row *validation.Row) validationDataRecord {
	d := validationDataRecord{
		Method: row.Method, Path: row.Path, In: row.In, Pointer: row.Schema, Rule: row.Rule, Message: row.Message,
		Requests: row.Sum().Requests, Keys: int64(len(row.Keys)), Last: []validationLastRecord{},
	}
	for _, l := range row.Last {
		d.Last = append(d.Last, validationLastRecord{l.At, optionalText(l.KeyID)})
	}
	return d
}
