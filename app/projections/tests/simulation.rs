//! Simulates the samples under races, crashes, repeats, delays and lost answers.

use aggregates::reservation::Status;
use aggregates::{
    Course, Customer, Fulfilment, Order, Payment, Reservation, Shipment, Student, Subscription, course, customer,
    fulfilment, order, payment, reservation, shipment, student, subscription,
};
use daybook::simulation::{Random, Request, Simulation, simulate};
use projections::OrdersByStatus;

fn samples() -> Simulation {
    simulate(aggregates::registry()).projections(projections::projections())
}

fn is_each_once<T: Ord>(values: impl Iterator<Item = T>) -> bool {
    let mut values: Vec<_> = values.collect();
    values.sort();
    values.windows(2).all(|pair| pair[0] != pair[1])
}

fn any_subscription(random: &mut Random) -> Request {
    let (course, student) = (*random.one_of(&["go", "rust"]), *random.one_of(&["ann", "bob", "eve"]));
    let id = random.below(5).to_string();
    match random.below(4) {
        0 => Request::to::<Course>(course, &course::Command::ChangeSeats { seats: 1 + random.below(2) as u32 }),
        1 => Request::to::<Subscription>(id, &subscription::Command::Cancel {}),
        _ => {
            let (course, student) = (course.to_owned(), student.to_owned());
            Request::to::<Subscription>(id, &subscription::Command::Subscribe { course, student })
        }
    }
}

/// A subscription, its course and its student change in one transaction, so this holds at each moment.
#[test]
fn no_seat_is_sold_twice() {
    let courses = ["go", "rust"].map(|id| Request::to::<Course>(id, &course::Command::CreateCourse { seats: 2 }));
    let students = ["ann", "bob", "eve"].map(|id| Request::to::<Student>(id, &student::Command::Enrol {}));
    samples()
        .starting_with(courses.into_iter().chain(students))
        .clients(8, any_subscription)
        .always(|world| world.states::<Course>().all(|course| course.taken <= course.seats))
        .always(|world| {
            let active = || world.states::<Subscription>().filter(|subscription| !subscription.cancelled);
            let in_course = |id| active().filter(|subscription| subscription.course == id).count();
            let of_student = |id| active().filter(|subscription| subscription.student == id).count();
            world.aggregates::<Course>().all(|(id, course)| course.taken as usize == in_course(id))
                && world.aggregates::<Student>().all(|(id, student)| student.courses as usize == of_student(id))
                && is_each_once(active().map(|subscription| (&subscription.course, &subscription.student)))
        })
        .seeds(300);
}

fn any_customer(random: &mut Random) -> Request {
    let (id, email) = (random.below(3).to_string(), format!("{}@example.com", random.below(3)));
    match random.below(5) {
        0 => Request::to::<Customer>(id, &customer::Command::DeleteCustomer {}),
        2 => Request::to::<Customer>(id, &customer::Command::ForgetCustomer {}),
        1 => {
            let name = "Ann".to_owned();
            Request::to::<Customer>(id, &customer::Command::RegisterCustomer { email: email.into(), name: name.into() })
        }
        _ => Request::to::<Customer>(id, &customer::Command::ChangeEmail { email: email.into() }),
    }
}

#[test]
fn each_address_belongs_to_one_customer() {
    samples()
        .clients(4, any_customer)
        .always(|world| {
            let customers = world.states::<Customer>().filter(|customer| !customer.deleted);
            is_each_once(customers.filter_map(|customer| customer.email.get()))
        })
        .seeds(300);
}

fn any_order(random: &mut Random) -> Request {
    let command = match random.below(5) {
        0 => {
            let items = vec![order::Item { product_id: "coffee".to_owned(), quantity: 1 }];
            order::Command::PlaceOrder { customer_id: "ann".to_owned(), items, total: 100 }
        }
        1 => order::Command::ProcessPayment { amount: 100 },
        2 => order::Command::ShipOrder { tracking_number: "T-1".to_owned() },
        3 => order::Command::DeliverOrder {},
        _ => order::Command::RefundOrder { amount: 100 },
    };
    Request::to::<Order>(random.below(3).to_string(), &command)
}

#[test]
fn each_order_is_counted_once() {
    samples()
        .clients(4, any_order)
        .always(|world| world.views_equal_their_folds())
        .finally(|world| {
            let counted: i64 = world.rows::<OrdersByStatus>().values().map(|row| row.orders).sum();
            counted == world.states::<Order>().count() as i64
        })
        .seeds(300);
}

fn any_reservation(random: &mut Random) -> Request {
    let command = match random.below(3) {
        0 => reservation::Command::Reserve { concert: "fidelio".to_owned(), seats: 1 + random.below(2) as u32 },
        1 => reservation::Command::Pay { amount: 4_000 },
        _ => reservation::Command::Expire {},
    };
    Request::to::<Reservation>(random.below(3).to_string(), &command)
}

#[test]
fn seats_are_held_until_they_are_paid_or_their_time_is_over() {
    samples()
        .clients(4, any_reservation)
        .always(|world| {
            let mut expired = world.states::<Reservation>().filter(|state| state.status == Status::Expired);
            expired.all(|state| state.held_until <= world.now())
        })
        .finally(|world| world.states::<Reservation>().all(|state| state.status != Status::Held))
        .seeds(300);
}

fn any_step_of_a_fulfilment(random: &mut Random) -> Request {
    let id = random.below(2).to_string();
    let shipment = |command| Request::to::<Shipment>(&*id, &command);
    match random.below(6) {
        0 => {
            let items = vec![order::Item { product_id: "coffee".to_owned(), quantity: 1 }];
            // The second one is too expensive for a payment.
            let total = *random.one_of(&[4_500, 2_000_000]);
            Request::to::<Order>(id, &order::Command::PlaceOrder { customer_id: "ann".to_owned(), items, total })
        }
        1 | 2 => Request::to::<Payment>(id, &payment::Command::ReceivePayment {}),
        3 => shipment(shipment::Command::CollectShipment { tracking_number: "T-1".to_owned() }),
        4 => shipment(shipment::Command::LoseShipment {}),
        _ => shipment(shipment::Command::AbandonShipment {}),
    }
}

/// No fulfilment waits for ever, and money stays exactly where a parcel has gone out.
#[test]
fn each_order_is_shipped_or_paid_back() {
    samples()
        .clients(4, any_step_of_a_fulfilment)
        .finally(|world| {
            let has_ended = |state: &fulfilment::State| {
                use fulfilment::Status::{Abandoned, Refunded, Shipped};
                matches!(state.status, Shipped | Abandoned | Refunded)
            };
            world.states::<Fulfilment>().all(has_ended)
        })
        .finally(|world| {
            let is_collected = |id| world.state::<Shipment>(id) == Some(&shipment::State::Collected);
            let is_paid = |state: &payment::State| state.status == payment::Status::Received;
            world.aggregates::<Payment>().all(|(id, payment)| is_paid(payment) == is_collected(id))
        })
        .seeds(300);
}
