// SPDX-License-Identifier: Apache-2.0

// Package sample makes the demonstration's dataset: 624 orders of an invented shop in 2025. The same seed gives the same
// bytes. Every person and address is made up; the addresses are under example.com.
package sample

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// Orders is the number of rows.
const Orders = 624

// Seed is the seed of the demonstration.
const Seed = 2025

// Config is the dataset's configuration for the file orders.csv, as it stands in a node's and a data plane's datasets.
const Config = `orders:
  path: orders.csv
  description: Orders of 2025, one row per order
  subject: customer_email
  columns:
    region: {type: text, class: public}
    order_id: {type: integer, class: internal}
    order_date: {type: date, class: public}
    order_value: {type: "decimal(10,2)", class: commercial}
    customer_name: {type: text, class: pii}
    customer_email: {type: text, class: pii}
    channel: {type: text, class: public}
`

var (
	regions  = []string{"North", "South", "East", "West"}
	levels   = []int{9_800, 7_400, 11_900, 8_600} // typical order in each region, in cents
	channels = []string{"web", "web", "web", "store", "store", "partner"}
	given    = []string{"Ada", "Ben", "Chloé", "Daniel", "Edith", "Farid", "Grete", "Hugo", "Ines", "Jakub", "Karin", "Liam", "Mara", "Nils", "Olga", "Pablo", "Quinn", "Rosa", "Sami", "Tilda"}
	family   = []string{"Albers", "Brandt", "Costa", "Dvorak", "Ekström", "Fischer", "Grant", "Haddad", "Ito", "Jensen", "Keller", "Lopez", "Moreau", "Novak", "O'Neill", "Petrov", "Quist", "Rossi", "Sato", "Thorne"}
	ascii    = strings.NewReplacer("é", "e", "ö", "o", "'", "")
)

// Write writes the CSV file: region, order_id, order_date, order_value, customer_name, customer_email, channel. Two orders in
// five fall into the third quarter.
func Write(w io.Writer, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0x7472656174790001)) //nolint:gosec // reproducible on purpose
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "region,order_id,order_date,order_value,customer_name,customer_email,channel")
	newYear := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	thirdQuarter := time.Date(2025, 7, 1, 0, 0, 0, 0, time.UTC)
	for i := range Orders {
		region := r.IntN(len(regions))
		day := newYear.AddDate(0, 0, r.IntN(365))
		if r.IntN(5) == 0 {
			day = thirdQuarter.AddDate(0, 0, r.IntN(92))
		}
		// Many small orders and few large ones, never below 5.00.
		cents := 500 + levels[region]*(20+r.IntN(100)+r.IntN(100)*r.IntN(100)/60)/100
		// A customer has one region, so that a region holds about fifty people.
		person := region + len(regions)*r.IntN(50)
		first, last := given[person%len(given)], family[(person/len(given)+person*7)%len(family)]
		email := strings.ToLower(ascii.Replace(first+"."+last)) + fmt.Sprintf("%d@example.com", person)
		name := first + " " + last
		if person%9 == 0 {
			name = `"` + last + ", " + first + `"` // as some clerk typed it
		}
		fmt.Fprintf(out, "%s,%d,%s,%d.%02d,%s,%s,%s\n", regions[region], 100_001+i, day.Format(time.DateOnly),
			cents/100, cents%100, name, email, channels[r.IntN(len(channels))])
	}
	return out.Flush()
}
