// Package fair shares scarce resources between owners, such as tenants. Owners take turns: a large owner delays
// another one by one turn at a time.
//
// It must not know the work or the owners.
package fair
