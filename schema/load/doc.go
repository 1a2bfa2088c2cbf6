// Package load turns the bytes of one file into one document, or into findings at
// exact places.
//
// A file passes these steps: limits of size and depth; one YAML node tree with
// positions; exact keys (no duplicates, aliases, anchors, merge keys, tags, second
// documents or invisible characters); the CUE definition of its kind; the rules that
// a definition cannot express. The result is a Go value. CUE, policy and runtimes
// see only documents that passed; nothing reads the YAML again.
//
// The package knows no other document (package schema/estate does), no Git, host or
// forge. A runtime's own definitions come to it as CUE source.
//
// # Codes
//
// Codes are stable: people search for them and tools suppress by them. Findings that
// need several documents have their codes in package schema/estate.
//
//	file.too-large           more than 64 KiB
//	file.encoding            not UTF-8
//	file.bom                 a byte order mark
//	file.control             control, invisible or bidirectional characters, or heaps of combining marks
//	file.unreadable          the reader failed on the file
//	file.more                findings beyond the first 25 of a file (note)
//	path.misplaced           no kind of document belongs at this path
//	path.stray               neither a document nor README.md
//	path.extension           .yml or .json instead of .yaml
//	path.case                upper case in the path
//	path.name                a name that is not an identifier
//	path.name-mismatch       metadata.name is not what the path says
//	path.kind                a document of another kind belongs here
//	path.symlink             a symbolic link
//	path.executable          the executable bit
//	path.submodule           a submodule
//	path.mode                another file that is not a regular file
//	yaml.syntax              not YAML
//	yaml.tab                 a tab in the indentation
//	yaml.empty               no document
//	yaml.second-document     more than one document
//	yaml.not-a-mapping       the document is a list or a scalar
//	yaml.depth               nested too deep
//	yaml.nodes               too many values
//	yaml.alias               an alias or anchor
//	yaml.merge               a merge key
//	yaml.tag                 an explicit or unknown tag
//	yaml.key                 a key that is missing or no text
//	yaml.duplicate-key       the same key twice
//	yaml.null                a field without a value
//	yaml.scalar              a scalar that readers take for different values
//	schema.api-version       another apiVersion
//	schema.kind              no such kind
//	schema.unknown-field     a field the kind has not
//	schema.missing-field     a field the kind must have
//	schema.type              a value of another type
//	schema.enum              none of the allowed values
//	schema.range             a number out of bounds
//	schema.pattern           text (or a key) of another form
//	schema.length            a list that is too short, or a mapping that is too long
//	schema.rule              a document that contradicts itself
//	schema.no-effect         a field that changes nothing here (warning)
//	schema.release           a version that the runtime does not know
//	schema.value             refused by the definition in some other way
//	conflict.device              one device file named twice
package load
