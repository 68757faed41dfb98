package validate

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Guarantee: a compiled operation keeps no part of the text of its document in memory.
func TestDocumentIsNotKept(t *testing.T) {
	const size = 32 << 20
	keep := func() *Operation {
		text := `{"openapi": "3.1.0", "info": {"description": "` + strings.Repeat("a", size) + `"}, "paths": {"/a/{p}": {"post": {"parameters": [{"in": "query", "name": "n",
			"style": "form", "schema": {"pattern": "^a$", "$ref": "#/components/schemas/b"}}], "requestBody": {"content": {"application/json": {"schema": {"properties": {"c": {"type": "string"}}, "required": ["c"], "enum": ["d"], "const": "e"}},
			"application/x-www-form-urlencoded": {"encoding": {"f": {"style": "form"}}}}}}}}, "components": {"schemas": {"b": {"patternProperties": {"^g$": {}}, "dependentRequired": {"h": ["i"]}}}}}`
		result := compileOne(t, text)
		if result.Operation == nil {
			t.Fatal(result.Reason)
		}
		return result.Operation
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	o := keep()
	if after := used(); after > before+size/2 {
		t.Errorf("got %d bytes more in use, want the text of the document released", after-before)
	}
	if got := fmt.Sprint(len(o.Check(request("x?n=b", []string{"Content-Type: application/json"}, `{}`)))); got == "0" {
		t.Error("got no problem, want the operation in use")
	}
}
