// Command mutants shows that tests hold what examples/requirements.md claims. For each
// mutant of examples/mutants.yaml it takes one effect out of the code, in an overlay of go
// test, and runs the test named beside it, which must fail.
package main
