package validate

// The bounds of a document. What goes beyond them leaves operations unchecked.
const (
	// maxSchemas is the number of schemas of a document that operations refer to.
	maxSchemas = 100_000
	// maxDepth is how deeply schemas, and the values that are checked, may nest.
	maxDepth = 256
	// maxPrograms is the number of instructions of all patterns of a document.
	maxPrograms = 500_000
	// maxPart is the number of schemas that are compiled together, and maxChildren the number of those with what they
	// leave to others: compiling takes time in proportion to the square of it.
	maxPart     = 200
	maxChildren = 2000
	// maxChain is the number of references that may follow one another to a parameter or a body.
	maxChain = 32
	// maxLookups is the number of schemas and properties that are looked at for all parameters with the style deepObject.
	maxLookups = 5_000_000
	// maxParameters is the number of parameters of one operation.
	maxParameters = 1000
)

// What the parts of compiled checks take in memory, in bytes: about, and rather more than less.
const (
	schemaBytes      = 640
	nameBytes        = 64
	instructionBytes = 48
	parameterBytes   = 256
)

// maxFields is the number of the fields of a form, and of the parts of a query.
const maxFields = 10_000

// MaxBody is the size of the bodies that are checked, in bytes.
const MaxBody = 1 << 20
