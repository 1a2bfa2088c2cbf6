// Package fair shares what is scarce between owners, such as tenants: owners take turns, so that one with
// very much work delays the work of another owner by one turn at a time.
//
// It must not know what the work is, nor what an owner is.
package fair
