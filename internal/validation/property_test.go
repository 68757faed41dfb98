package validation

import "testing"

// Guarantee: a report names the property of a body as the document does.
func TestPropertyOf(t *testing.T) {
	for pointer, want := range map[string]string{
		"/paths/~1orders/post/requestBody/content/application~1json/schema":                                        "",
		"/paths/~1orders/post/requestBody/content/application~1json/schema/properties/qty":                         "qty",
		"/paths/~1schema/post/requestBody/content/application~1json/schema/properties/items/items/properties/a~1b": "items.a/b",
		"/components/schemas/Order/properties/qty":                                                                 "qty",
		"/components/schemas/properties/properties/properties":                                                     "properties",
		"/components/schemas/Order/allOf/1/properties/qty/anyOf/0":                                                 "qty",
		"/components/requestBodies/Order/content/application~1json/schema/properties/qty":                          "qty",
	} {
		if got := propertyOf(pointer); got != want {
			t.Errorf("%s: got %q, want %q", pointer, got, want)
		}
	}
}
