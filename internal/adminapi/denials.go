package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/issuer"
)

type createDenialRequest struct {
	Subject      *string `json:"subject,omitempty" nullable:"true" minLength:"1" maxLength:"8192" doc:"The subject (sub) whose tokens are refused." example:"user-42"`
	JTI          *string `json:"jti,omitempty" nullable:"true" minLength:"1" maxLength:"8192" doc:"The identifier (jti) of the one token that is refused." example:"8b1f"`
	IssuedBefore *string `json:"issued_before,omitempty" nullable:"true" minLength:"1" doc:"All tokens that were issued (iat) before this time are refused, and all that do not say when: an RFC 3339 time, or a date, which means midnight UTC." example:"2026-03-01T12:00:00Z"`
	Until        *string `json:"until,omitempty" nullable:"true" minLength:"1" doc:"When the denial ends, in the same form. Default: when every token that the issuer has issued up to now has expired (max_lifetime)." example:"2026-03-02T12:00:00Z"`
	Reason       *string `json:"reason,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Why, for people." example:"Laptop stolen"`
}

type denialRecord struct {
	DenialID     string     `json:"denial_id" doc:"Identifier of the denial." example:"den_01jz8y5c3te9b8r2m6q4v7x0aa"`
	IssuerID     string     `json:"issuer_id" doc:"Issuer whose tokens are refused." example:"iss_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Subject      *string    `json:"subject" doc:"The subject whose tokens are refused, or its SHA-256 if it is longer than 255 bytes; null for others." example:"user-42"`
	JTI          *string    `json:"jti" doc:"The identifier of the token that is refused, in the same form; null for others." example:"8b1f"`
	IssuedBefore *time.Time `json:"issued_before" doc:"Tokens that were issued before this time are refused; null for others." example:"2026-03-01T12:00:00Z"`
	Until        time.Time  `json:"until" doc:"When the denial ends; the issuer's leeway counts."`
	Reason       *string    `json:"reason" doc:"Why, for people; null if no reason was given." example:"Laptop stolen"`
	CreatedAt    time.Time  `json:"created_at" doc:"When the denial was created."`
}

func presentDenial(d *issuer.Denial) denialRecord {
	return denialRecord{
		DenialID: d.ID, IssuerID: d.IssuerID, Subject: optionalText(d.Subject), JTI: optionalText(d.JTI), IssuedBefore: optionalTime(d.IssuedBefore),
		Until: d.Until.UTC(), Reason: optionalText(d.Reason), CreatedAt: d.CreatedAt.UTC(),
	}
}

func newDenialResponse(d *issuer.Denial) response {
	return response{status: http.StatusCreated, body: presentDenial(d)}.created("/v1/issuers/" + d.IssuerID + "/denials/" + d.ID)
}

func denialFilters() []queryParam {
	return []queryParam{
		{name: "subject", doc: "Only denials of this subject.", schema: textSchema(), example: "user-42"},
		{name: "jti", doc: "Only denials of the token with this identifier.", schema: textSchema(), example: "8b1f"},
	}
}

func (a *API) denialOperations() []operation {
	record := reflect.TypeFor[denialRecord]()
	return []operation{{
		id: "listDenials", method: http.MethodGet, path: "/v1/issuers/{issuer_id}/denials", tag: "Issuers",
		summary: "List the denials of an issuer", description: "Returns the denials of an issuer that have not ended, newest first.",
		query: append(pageParams(), denialFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[denialRecord]](),
		run: a.listDenials,
	}, {
		id: "createDenial", method: http.MethodPost, path: "/v1/issuers/{issuer_id}/denials", tag: "Issuers",
		summary: "Deny tokens of an issuer",
		description: "Refuses tokens of an issuer before they expire: those of a subject, one token, or all that were issued before some time; exactly one of the three. " +
			"When the call returns, every node refuses them, and streams are cut. It does not keep the issuer from issuing others: bar the user there as well.",
		body: reflect.TypeFor[createDenialRequest](), replayable: true,
		success: http.StatusCreated, result: record, hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.createDenial),
	}, {
		id: "getDenial", method: http.MethodGet, path: "/v1/issuers/{issuer_id}/denials/{denial_id}", tag: "Issuers",
		summary: "Get a denial", description: "Returns one denial of an issuer. One that has ended does not exist any more.",
		success: http.StatusOK, result: record,
		run: func(c *call) (response, error) {
			return show(presentDenial)(a.cfg.Control.Denial(c.ctx, &c.actor, c.params["issuer_id"], c.params["denial_id"]))
		},
	}, {
		id: "deleteDenial", method: http.MethodDelete, path: "/v1/issuers/{issuer_id}/denials/{denial_id}", tag: "Issuers",
		summary:     "Lift a denial",
		description: "Lifts a denial: the tokens are valid again until they expire. Returns the record as it was.",
		success:     http.StatusOK, result: record,
		run: func(c *call) (response, error) {
			return show(presentDenial)(a.cfg.Control.DeleteDenial(c.ctx, &c.actor, c.params["issuer_id"], c.params["denial_id"]))
		},
	}}
}

func (a *API) listDenials(c *call) (response, error) {
	filter := control.DenialFilter{Subject: c.query.Get("subject"), JTI: c.query.Get("jti")}
	return page(c, "denials", c.params["issuer_id"]+"?"+c.cursorBinding(denialFilters()), func(p control.Page) ([]issuer.Denial, error) {
		return a.cfg.Control.Denials(c.ctx, &c.actor, c.params["issuer_id"], filter, p)
	}, func(d *issuer.Denial) (string, denialRecord) { return d.ID, presentDenial(d) })
}

// timeOf returns the time of a field of a request; the zero time if it is not given. An invalid one refuses the call.
func (c *call) timeOf(field string, text *string) time.Time {
	if text == nil {
		return time.Time{}
	}
	t, err := parseTime(*text)
	if err != nil {
		c.refuse(invalidTime(field))
	}
	return t
}

func (a *API) createDenial(c *call, req createDenialRequest) (response, error) {
	in := issuer.Denial{
		Subject: value(req.Subject), JTI: value(req.JTI), IssuedBefore: c.timeOf("issued_before", req.IssuedBefore), Until: c.timeOf("until", req.Until), Reason: value(req.Reason),
	}
	return respond(newDenialResponse)(a.cfg.Control.CreateDenial(withIdempotency(c, newDenialResponse), &c.actor, c.params["issuer_id"], &in))
}
