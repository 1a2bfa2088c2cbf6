package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Price is a price in millionths of the currency of its RateCard. A document has it as a whole
// number of millionths, or as an amount with the currency: 10000 and "0.01 EUR" are the same.
type Price int64

// In returns the amount in a currency, such as "0.01 EUR".
func (p Price) In(currency string) string {
	const unit = 1_000_000
	text := fmt.Sprintf("%d.%06d", int64(p)/unit, int64(p)%unit)
	whole, fraction, _ := strings.Cut(text, ".")
	if fraction = strings.TrimRight(fraction, "0"); len(fraction) < 2 {
		fraction += strings.Repeat("0", 2-len(fraction))
	}
	return whole + "." + fraction + " " + currency
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Price) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '"' {
		return json.Unmarshal(data, (*int64)(p))
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	amount, _, _ := strings.Cut(text, " ")
	whole, fraction, _ := strings.Cut(amount, ".")
	const digits = 6 // of a millionth
	if len(fraction) > digits {
		return fmt.Errorf("price %q has more than %d digits after the point", text, digits)
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", digits-len(fraction)), 10, 64)
	if err != nil {
		return fmt.Errorf("price %q: %w", text, err)
	}
	*p = Price(n)
	return nil
}
