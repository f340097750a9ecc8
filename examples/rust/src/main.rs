//! Trains the network of digits.py from Rust:
//!
//!     graphc compile digits.py:step digits.py:predict -o build/libdigits.a
//!     gzip -dc digits.csv.gz > build/digits.csv
//!     cargo run --offline --release --manifest-path rust/Cargo.toml -- build/digits.csv [STATE]
use digits::{Digits, PIXELS};
use std::{env, error::Error, fs};

const HELD_OUT: usize = 599;
const BATCH: usize = 32;
const EPOCHS: usize = 30;

/// Marsaglia's xorshift64 and Fisher and Yates's shuffle, as in digits.py.
fn shuffle(order: &mut [usize], s: &mut u64) {
    for i in (1..order.len()).rev() {
        *s ^= *s << 13;
        *s ^= *s >> 7;
        *s ^= *s << 17;
        order.swap(i, ((*s >> 33) % (i as u64 + 1)) as usize);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).unwrap_or("digits.csv".into());
    let rows = fs::read_to_string(path)?
        .lines()
        .map(|line| line.split(',').map(str::parse).collect::<Result<Vec<f32>, _>>())
        .collect::<Result<Vec<_>, _>>()?;
    let take = |order: &[usize]| -> (Vec<f32>, Vec<i64>) {
        let x = order.iter().flat_map(|&i| rows[i][..PIXELS].iter().copied()).collect();
        (x, order.iter().map(|&i| rows[i][PIXELS] as i64).collect())
    };

    let mut order: Vec<usize> = (0..rows.len()).collect();
    let mut seed = 1;
    shuffle(&mut order, &mut seed);
    let (held_out, train) = order.split_at_mut(HELD_OUT);

    let mut network = Digits::new();
    for epoch in 1..=EPOCHS {
        let mut total = 0.0;
        shuffle(train, &mut seed);
        for some in train.chunks(BATCH) {
            let (x, y) = take(some); // the last one is smaller
            total += f64::from(network.step(&x, &y)?) * y.len() as f64;
        }
        if epoch % 10 == 0 {
            println!("epoch {epoch}: loss {:.6}", total / train.len() as f64);
        }
    }
    let (x, y) = take(held_out);
    let right = network.predict(&x)?.iter().zip(&y).filter(|(a, b)| a == b).count();
    println!("test accuracy: {:.1}%", 100.0 * right as f64 / y.len() as f64);
    if let Some(path) = env::args().nth(2) {
        network.save(&path)?;
    }
    Ok(())
}
